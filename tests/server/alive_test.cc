// The effects of heartbeats and suppressions on plumbd: they are journalled, so that a restart and
// an audit of the stored run give the same.
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/server/support.h"

namespace plumbline {
namespace {

using google::protobuf::util::MessageDifferencer;
using test::AgentStream;
using test::Eventually;
using test::Goodbye;
using test::LeakingStep;
using test::Plumbd;
using test::Process;
using test::ScalarStep;
using test::SourceOf;
using test::TempFolder;

bool Equals(const v1::Finding& a, const v1::Finding& b) { return MessageDifferencer::Equals(a, b); }

class AliveTest : public ::testing::Test {
 protected:
  void Start(const std::string& config) {
    std::ofstream(folder_.File("plumbd.toml")) << config;
    Restart();
  }
  void Restart() {
    server_ = std::make_unique<Plumbd>(std::vector<std::string>{
        "--data", folder_.File("data"), "--config", folder_.File("plumbd.toml")});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  void Kill() {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
  }
  std::optional<v1::Finding> Found(const std::string& rule) const {
    const auto incidents = server_->Incidents("run", rule);
    if (incidents.empty()) return std::nullopt;
    return incidents[0].finding();
  }
  std::string AuditOfTheRun() const {
    return test::RunToEnd({PLUMB_PROGRAM, "audit", "--server", server_->address(), "--run", "run",
                           "--format", "json", "--quiet"})
        .output;
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
};

bool Beat(AgentStream& stream, uint64_t id, int64_t newest, double still_seconds,
          v1::Span::Kind stage = v1::Span::KIND_UNSPECIFIED) {
  v1::AgentMessage message;
  v1::Heartbeat& beat = *message.mutable_heartbeat();
  beat.set_stream_id(id);
  beat.set_any_step(true);
  beat.set_newest_step(newest);
  beat.set_oldest_unsent_step(newest + 1);
  beat.set_steps_ended(newest);
  beat.set_still_ns(static_cast<uint64_t>(still_seconds * 1e9) + 1);
  beat.set_open_stage(stage);
  return stream.SendRaw(message);
}

TEST_F(AliveTest, AHangIsAFindingThatARestartKeepsAndAnAuditRepeats) {
  Start("[liveness]\nhang_seconds = 0.3\n");
  AgentStream a(*server_, 1, {SourceOf("run", 0, 2)});
  AgentStream b(*server_, 2, {SourceOf("run", 1, 2)});
  ASSERT_TRUE(a.Welcomed() && b.Welcomed());
  // Steps that the server sees in thirteen of its checks; five give a median.
  for (int64_t step = 0; step < 14; ++step) {
    ASSERT_TRUE(a.Send(ScalarStep(SourceOf("run", 0, 2), step), static_cast<uint64_t>(step) + 1));
    ASSERT_TRUE(b.Send(ScalarStep(SourceOf("run", 1, 2), step), static_cast<uint64_t>(step) + 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
  }
  // First a declared stage: nothing is reported, for any duration of the stage.
  const auto in_stage = [&](double still) {
    return Beat(a, 1, 14, still) && Beat(b, 2, 13, still, v1::Span::KIND_CHECKPOINT);
  };
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(in_stage(100 + i));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  EXPECT_FALSE(Found("performance/hang").has_value());
  // A rank without messages for a while is "silent" until the next heartbeat.
  EXPECT_TRUE(Eventually(
      [&] { return in_stage(110) && server_->Run("run")->liveness().count("late") != 0; }));
  ASSERT_TRUE(Eventually([&] {
    Beat(a, 1, 14, 200);
    Beat(b, 2, 13, 200);
    return Found("performance/hang").has_value();
  }));
  const v1::Finding finding = *Found("performance/hang");
  EXPECT_EQ(finding.level(), v1::LEVEL_ERROR);
  ASSERT_EQ(finding.site().ranks_size(), 1);
  EXPECT_EQ(finding.site().ranks(0), 1u);
  EXPECT_EQ(finding.site().step_first(), 13);
  Kill();
  Restart();
  ASSERT_TRUE(Eventually([&] { return Found("performance/hang").has_value(); }));
  EXPECT_TRUE(Equals(*Found("performance/hang"), finding));
  EXPECT_NE(AuditOfTheRun().find(finding.fingerprint()), std::string::npos);
}

TEST_F(AliveTest, SuppressedLiveAfterARestartAndOffline) {
  std::ofstream(folder_.File("s.toml"))
      << "[[suppress]]\nrule = \"causality/*\"\nlayer = "
         "\"layers.0\"\nreason = \"known\"\nexpires = 2999-01-01\n";
  Start("[suppressions]\nfile = \"" + folder_.File("s.toml") + "\"\n[capsules]\ntake = \"note\"\n");
  const v1::Source source = SourceOf("run", 0, 1);
  AgentStream agent(*server_, 1, {source}, 1, true);
  ASSERT_TRUE(agent.Send(LeakingStep(source, 0, "layers.0"), 1));
  ASSERT_TRUE(agent.Acknowledged(1));
  ASSERT_TRUE(Eventually([&] { return Found("causality/moe-future-leak").has_value(); }));
  EXPECT_TRUE(Found("causality/moe-future-leak")->suppressed());
  EXPECT_EQ(agent.directives(), 0u) << "no capsule of what is suppressed";
  EXPECT_EQ(server_->Run("run")->open_incidents() + 1, server_->Incidents("run").size());

  // The file changes. From here on the suppression applies, and the finding stays one finding.
  std::ofstream(folder_.File("s.toml"))
      << "[[suppress]]\nrule = \"causality/*\"\nlayer = "
         "\"layers.7\"\nreason = \"known\"\nexpires = 2999-01-01\n";
  server_->process().Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] {
    return server_->process().errors().find("suppressions are in force") !=
           server_->process().errors().rfind("suppressions are in force");
  }));
  ASSERT_TRUE(agent.Send(LeakingStep(source, 1, "layers.0"), 2));
  ASSERT_TRUE(Eventually([&] { return !Found("causality/moe-future-leak")->suppressed(); }));
  EXPECT_EQ(server_->Incidents("run", "causality/moe-future-leak").size(), 1u);
  EXPECT_EQ(server_->Run("run")->open_incidents(), server_->Incidents("run").size());

  // If the file has an error, the earlier contents stay.
  std::ofstream(folder_.File("s.toml")) << "[[suppress]]\nrul = \"causality/*\"\n";
  server_->process().Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] {
    return server_->process().errors().find("did you mean \\\"rule\\\"") != std::string::npos ||
           server_->process().errors().find("did you mean \"rule\"") != std::string::npos;
  }));
  std::ofstream(folder_.File("s.toml"))
      << "[[suppress]]\nrule = \"causality/*\"\nlayer = "
         "\"layers.7\"\nreason = \"known\"\nexpires = 2999-01-01\n";
  ASSERT_TRUE(agent.Send(LeakingStep(source, 2, "layers.7"), 3));
  ASSERT_TRUE(agent.Send(Goodbye(source, 2), 4));
  ASSERT_TRUE(agent.Acknowledged(4));
  const auto leaks = [&] {
    std::vector<v1::Finding> findings;
    for (const auto& status : server_->Statuses("run", "causality/moe-future-leak")) {
      for (const v1::IncidentSite& site : status.sites())
        findings.push_back(server_->Finding(site.fingerprint()));
    }
    return findings;
  };
  ASSERT_TRUE(Eventually([&] { return leaks().size() == 2; }));
  const auto live = leaks();
  EXPECT_FALSE(live[0].suppressed()) << "what is not suppressed shows";
  Kill();
  Restart();
  ASSERT_TRUE(Eventually([&] { return leaks().size() == 2; }));
  const auto again = leaks();
  const std::string audit = AuditOfTheRun();
  for (size_t i = 0; i < live.size(); ++i) {
    EXPECT_TRUE(Equals(live[i], again[i]));
    const size_t at = audit.find(live[i].fingerprint());
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(audit.compare(audit.find("\"suppressed\": ", at) + 14, 4, "true") == 0,
              live[i].suppressed());
  }
}

// Twelve layers with one router, one of them suppressed.
TEST_F(AliveTest, OneCauseIsOneIncidentLiveAfterAKillAndOffline) {
  std::ofstream(folder_.File("s.toml"))
      << "[[suppress]]\nrule = \"causality/*\"\nlayer = "
         "\"layers.0\"\nreason = \"known\"\nexpires = 2999-01-01\n";
  Start("[suppressions]\nfile = \"" + folder_.File("s.toml") + "\"\n");
  const v1::Source source = SourceOf("run", 0, 1);
  AgentStream agent(*server_, 1, {source});
  uint64_t sequence = 0;
  for (int64_t step = 0; step < 12; ++step)
    agent.Send(LeakingStep(source, step, "layers." + std::to_string(step)), ++sequence);
  agent.Send(Goodbye(source, 11), ++sequence);
  ASSERT_TRUE(agent.Acknowledged(sequence));
  const auto status = [&] {
    const auto all = server_->Statuses("run", "causality/moe-future-leak");
    return all.size() == 1 ? all[0] : v1::IncidentStatus();
  };
  ASSERT_TRUE(Eventually([&] { return status().site_count() == 12; }));
  const v1::IncidentStatus live = status();
  EXPECT_EQ(Found("causality/moe-future-leak")->site().layer(), "layers.1") << "0 is suppressed";
  EXPECT_EQ(live.fingerprint().size(), 32u);
  Kill();
  Restart();
  ASSERT_TRUE(Eventually([&] { return status().site_count() == 12; }));
  EXPECT_TRUE(MessageDifferencer::Equals(status(), live));

  const auto report = nlohmann::json::parse(AuditOfTheRun(), nullptr, false);
  ASSERT_TRUE(report.is_object());
  const nlohmann::json* offline = nullptr;
  for (const auto& one : report["incidents"]) {
    if (one["rule"] != "causality/moe-future-leak") continue;
    ASSERT_EQ(offline, nullptr) << "one block";
    offline = &one;
  }
  ASSERT_NE(offline, nullptr);
  EXPECT_EQ((*offline)["fingerprint"], live.fingerprint());
  EXPECT_EQ((*offline)["cause"], live.cause());
  EXPECT_EQ((*offline)["sites"], 12);
  ASSERT_EQ((*offline)["findings"].size(), 12u);
  for (int i = 0; i < live.sites_size(); ++i)
    EXPECT_EQ((*offline)["findings"][static_cast<size_t>(i)], live.sites(i).fingerprint());

  const std::string text = test::RunToEnd({PLUMB_PROGRAM, "audit", "--server", server_->address(),
                                           "--run", "run", "--quiet"})
                               .output;
  EXPECT_NE(text.find("sites      12: layers.1"), std::string::npos) << text;
  // A finding's fingerprint selects its incident, and its capsule.
  const std::string one = live.sites(5).fingerprint();
  const std::string stated =
      test::RunToEnd({PLUMB_PROGRAM, "query", "incident", one, "--acknowledge", "--reason", "seen",
                      "--server", server_->address()})
          .output;
  EXPECT_NE(stated.find(live.fingerprint() + " is acknowledged"), std::string::npos) << stated;
  EXPECT_EQ(server_->Finding(one).site().layer(), live.sites(5).layer());
}

TEST_F(AliveTest, AnExpiredOneAndAnUnusedOneAreFindings) {
  std::ofstream(folder_.File("s.toml"))
      << "[[suppress]]\nrule = \"causality/*\"\nreason = \"old\"\nexpires = 2020-01-01\n"
         "[[suppress]]\nrule = \"precision/*\"\nreason = \"none\"\nexpires = 2999-01-01\n";
  Start("[suppressions]\nfile = \"" + folder_.File("s.toml") + "\"\n");
  const v1::Source source = SourceOf("run", 0, 1);
  AgentStream agent(*server_, 1, {source});
  ASSERT_TRUE(agent.Send(LeakingStep(source, 0), 1));
  ASSERT_TRUE(Eventually([&] { return Found("meta/unused-suppression").has_value(); }));
  EXPECT_EQ(Found("meta/unused-suppression")->cause().id(), "expired");
  EXPECT_TRUE(Eventually([&] { return Found("causality/moe-future-leak").has_value(); }));
  EXPECT_FALSE(Found("causality/moe-future-leak")->suppressed());
  ASSERT_TRUE(agent.Send(Goodbye(source, 0), 2));
  ASSERT_TRUE(
      Eventually([&] { return server_->Incidents("run", "meta/unused-suppression").size() == 2; }));
}

TEST_F(AliveTest, AWrongFileStopsTheStart) {
  std::ofstream(folder_.File("s.toml")) << "[[suppress]]\nrule = \"causality/*\"\nreasn = \"x\"\n";
  std::ofstream(folder_.File("plumbd.toml"))
      << "[suppressions]\nfile = \"" << folder_.File("s.toml") << "\"\n";
  const test::Ended server =
      test::RunToEnd({PLUMBD_PROGRAM, "--config", folder_.File("plumbd.toml"), "--check-config"});
  EXPECT_EQ(server.status, 2);
  EXPECT_NE(server.errors.find("s.toml:3: unknown key \"reasn\""), std::string::npos)
      << server.errors;
}

}  // namespace
}  // namespace plumbline
