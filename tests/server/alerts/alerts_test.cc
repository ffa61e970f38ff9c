// Alerts end to end: a real plumbd, Debian's Alertmanager, and the test's own receivers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "tests/server/alerts/support.h"
#include "tests/server/http_support.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

constexpr char kSecret[] = "0123456789abcdef0123";
constexpr uint32_t kStreams = 8;
constexpr uint32_t kRanksAStream = 512;
constexpr uint32_t kWorld = kStreams * kRanksAStream;

// One agent of many ranks, all of which leak in step 0.
class ManyRanks {
 public:
  ManyRanks(const Plumbd& server, const std::string& run) {
    for (uint32_t s = 0; s < kStreams; ++s) {
      auto& sources = sources_.emplace_back();
      for (uint32_t r = 0; r < kRanksAStream; ++r)
        sources.push_back(SourceOf(run, s * kRanksAStream + r, kWorld));
      agents_.push_back(std::make_unique<AgentStream>(server, 1000 + s, sources));
    }
  }

  void Leak() {
    for (uint32_t s = 0; s < kStreams; ++s) {
      v1::Batch batch = Complete(s, 0);
      for (uint32_t r = 0; r < kRanksAStream; ++r) {
        v1::Evidence& evidence = *batch.add_evidence();
        evidence = LeakingStep(sources_[s][r], 0).evidence(0);
        evidence.set_source(r);
      }
      agents_[s]->Send(std::move(batch), 1);
    }
  }
  // Sends steps without a fault, up to this one.
  void GoOn(int64_t step) {
    for (uint32_t s = 0; s < kStreams; ++s) agents_[s]->Send(Complete(s, step), 2);
  }

 private:
  v1::Batch Complete(uint32_t stream, int64_t step) const {
    v1::Batch batch;
    for (const v1::Source& source : sources_[stream]) *batch.add_sources() = source;
    for (uint32_t r = 0; r < kRanksAStream; ++r) AddProgress(&batch, step).set_source(r);
    return batch;
  }

  std::vector<std::vector<v1::Source>> sources_;
  std::vector<std::unique_ptr<AgentStream>> agents_;
};

class AlertsTest : public testing::Test {
 protected:
  void SetUp() override { WriteSecret(folder_.File("secret"), kSecret); }

  std::string WebhookRoute() const {
    return "[[alerts.route]]\nname = \"hook\"\nwebhook = \"" + direct_.url("/hook") +
           "\"\nsecret_file = \"" + folder_.File("secret") + "\"\n";
  }
  static std::string AlertmanagerRoute(const Alertmanager& am) {
    return "[[alerts.route]]\nname = \"am\"\nalertmanager = \"" + am.url() +
           "\"\nresend_seconds = 2.0\n";
  }
  std::unique_ptr<Plumbd> Start(const std::string& routes,
                                std::vector<std::string> options = {}) const {
    std::ofstream(folder_.File("plumbd.toml"))
        << "[incidents]\nquiet_steps = 5\n[rules]\nrun = [\"causality/moe-future-leak\"]\n"
        << routes;
    options.insert(options.end(),
                   {"--config", folder_.File("plumbd.toml"), "--data", folder_.File("data")});
    return std::make_unique<Plumbd>(std::move(options));
  }
  std::string Plumb(const Plumbd& server, std::vector<std::string> command) const {
    command.insert(command.begin(), PLUMB_PROGRAM);
    command.insert(command.end(), {"--server", server.address()});
    const Ended ended = RunToEnd(command);
    return ended.output + ended.errors;
  }

  TempFolder folder_;
  HttpReceiver direct_;
  HttpReceiver after_;  // receives from the Alertmanager
};

TEST_F(AlertsTest, OneFaultOn4096RanksIsOneNotificationAndItsEndIsReported) {
  Alertmanager am(after_.url("/from-am"));
  ASSERT_TRUE(am.ok()) << am.errors();
  auto server =
      Start("[alerts]\ngather_most_seconds = 60.0\n" + AlertmanagerRoute(am) + WebhookRoute());
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  ManyRanks ranks(*server, "big");
  ranks.Leak();
  ASSERT_EQ(direct_.Wait(1).size(), 1u);
  ASSERT_EQ(after_.Wait(1).size(), 1u);
  const auto opened = direct_.Wait(1)[0];
  EXPECT_EQ(opened["event"], "opened");
  EXPECT_EQ(opened["finding"]["site"]["rank_count"], kWorld) << opened.dump(1);
  EXPECT_EQ(opened["finding"]["site"]["rank_text"], "0-4095");
  EXPECT_EQ(opened["finding"]["strength"], "proved");
  ranks.GoOn(20);
  ASSERT_EQ(direct_.Wait(2).size(), 2u);
  ASSERT_EQ(after_.Wait(2).size(), 2u);
  EXPECT_EQ(direct_.Wait(2)[1]["event"], "resolved");

  const auto from_am = after_.Wait(2);
  EXPECT_EQ(from_am[0]["status"], "firing");
  ASSERT_EQ(from_am[0]["alerts"].size(), 1u);
  const auto& alert = from_am[0]["alerts"][0];
  EXPECT_EQ(alert["labels"]["alertname"], "causality/moe-future-leak");
  EXPECT_EQ(alert["labels"]["run"], "big");
  EXPECT_EQ(alert["annotations"]["ranks"], "0-4095");
  EXPECT_THAT(std::string(alert["annotations"]["description"]), HasSubstr("plumb explain"));
  EXPECT_EQ(from_am[1]["status"], "resolved");

  // Expects exactly these, because alerts that are sent again every two seconds are not new
  // notifications.
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_EQ(direct_.requests().size(), 2u);
  EXPECT_EQ(after_.requests().size(), 2u);
  const std::string fingerprint = opened["incident"]["fingerprint"];
  const std::string history = Plumb(*server, {"query", "history", fingerprint});
  EXPECT_THAT(history, testing::ContainsRegex("hook +opened +delivered"));
  EXPECT_THAT(history, testing::ContainsRegex("am +resolved +delivered"));
}

TEST_F(AlertsTest, OneCauseAtTenSitesIsOneNotification) {
  auto server = Start(WebhookRoute());
  const v1::Source source = SourceOf("sites");
  AgentStream agent(*server, 6, {source});
  for (uint64_t i = 0; i < 10; ++i) {
    const auto step = static_cast<int64_t>(i);
    agent.Send(LeakingStep(source, step, "layers." + std::to_string(i)), i + 1);
  }
  ASSERT_TRUE(agent.Acknowledged(10));
  const auto opened = direct_.Wait(1).at(0);
  EXPECT_EQ(opened["event"], "opened");
  EXPECT_EQ(opened["finding"]["site"]["layer"], "layers.0");
  ASSERT_TRUE(Eventually([&] { return server->Statuses().at(0).site_count() == 10; }));
  // No receiver gets a notification twice, for any gathering time and any later event.
  agent.Send(LeakingStep(source, 10, "layers.10"), 11);
  ASSERT_TRUE(agent.Acknowledged(11));
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
  ASSERT_EQ(direct_.requests().size(), 1u);
  EXPECT_EQ(opened["incident"]["fingerprint"], server->Statuses().at(0).fingerprint());
  EXPECT_EQ(server->Incidents().size(), 1u);
}

TEST_F(AlertsTest, WhatWasDecidedBeforeAKillIsDeliveredAfterItAndOnce) {
  direct_.Answer(503);
  auto server = Start(WebhookRoute());
  const v1::Source source = SourceOf("killed");
  {
    AgentStream agent(*server, 7, {source});
    agent.Send(LeakingStep(source, 0), 1);
    ASSERT_TRUE(agent.Acknowledged(1));
    ASSERT_GE(direct_.Wait(1).size(), 1u);
  }
  server->process().Signal(SIGKILL);
  server->process().Wait();
  direct_.Answer(200);
  server = Start(WebhookRoute());
  // The receiver gets the notification before plumbd has recorded the delivery.
  const std::string fingerprint = direct_.Wait(1)[0]["incident"]["fingerprint"];
  ASSERT_TRUE(Eventually([&] {
    return testing::Value(Plumb(*server, {"query", "history", fingerprint}),
                          testing::ContainsRegex("hook +opened +delivered"));
  }));
  const size_t before = direct_.requests().size();
  // A second start sends nothing, because everything has been sent.
  server->process().Signal(SIGKILL);
  server->process().Wait();
  server = Start(WebhookRoute());
  AgentStream agent(*server, 7, {source}, 2);
  agent.Send(ScalarStep(source, 20), 2);
  const auto bodies = direct_.Wait(before + 1);
  ASSERT_EQ(bodies.size(), before + 1);
  EXPECT_EQ(bodies.back()["event"], "resolved");
  std::set<std::string> keys;
  for (const ReceivedRequest& r : direct_.requests()) keys.insert(r.headers.at("Idempotency-Key"));
  EXPECT_EQ(keys.size(), 2u);
}

TEST_F(AlertsTest, AKillBeforeAnythingWasDecidedLosesNothingEither) {
  auto server = Start("[alerts]\ngather_seconds = 60.0\n" + WebhookRoute());
  const v1::Source source = SourceOf("killed");
  {
    AgentStream agent(*server, 8, {source});
    agent.Send(LeakingStep(source, 0), 1);
    ASSERT_TRUE(agent.Acknowledged(1));
    ASSERT_TRUE(Eventually([&] { return !server->Incidents().empty(); }));
  }
  server->process().Signal(SIGKILL);
  server->process().Wait();
  EXPECT_EQ(direct_.requests().size(), 0u);
  server = Start(WebhookRoute());
  EXPECT_EQ(direct_.Wait(1).at(0)["event"], "opened");
}

// plumbd's own route and the rules file of Prometheus lead to one Alertmanager.
TEST_F(AlertsTest, OneIncidentIsOneNotificationNextToPrometheusWithItsRules) {
  struct Case {
    const char* only_rules;  // of the route
    const char* alert;       // whose notification arrives
  };
  for (const Case& c : {Case{"", "causality/moe-future-leak"},
                        Case{"rules = [\"health/*\"]\n", "PlumblineOpenErrors"}}) {
    SCOPED_TRACE(c.alert);
    const HttpReceiver after;
    Alertmanager am(after.url());
    ASSERT_TRUE(am.ok()) << am.errors();
    auto server = Start(AlertmanagerRoute(am) + c.only_rules, {"--http", "127.0.0.1:0"});
    ASSERT_FALSE(server->address().empty()) << server->process().errors();
    const Prometheus prometheus(HttpAddress(*server), am.address());
    const v1::Source source = SourceOf(c.alert);
    AgentStream agent(*server, 5, {source});
    agent.Send(LeakingStep(source, 0), 1);
    ASSERT_TRUE(agent.Acknowledged(1));
    ASSERT_EQ(after.Wait(1).size(), 1u) << prometheus.errors();
    // Three evaluations after Prometheus has the incident.
    ASSERT_TRUE(Eventually([&] {
      return !prometheus.Value("max_over_time(plumbline_open_incidents%5B5m%5D)%3E0").empty();
    }));
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const auto requests = after.Wait(1);
    ASSERT_EQ(requests.size(), 1u);
    EXPECT_EQ(requests[0]["alerts"][0]["labels"]["alertname"], c.alert);
    EXPECT_EQ(requests[0]["alerts"].size(), 1u);
    server->Stop();
    std::filesystem::remove_all(folder_.File("data"));
  }
}

TEST_F(AlertsTest, AnAlertmanagerIsNotifiedAgainAndSilencedWithTheIncident) {
  Alertmanager am(after_.url());
  ASSERT_TRUE(am.ok()) << am.errors();
  auto server = Start(AlertmanagerRoute(am));
  const v1::Source source = SourceOf("s");
  AgentStream agent(*server, 9, {source});
  agent.Send(LeakingStep(source, 0), 1);
  ASSERT_EQ(after_.Wait(1).size(), 1u);
  const auto alert = [&] {
    const nlohmann::json alerts = am.Alerts();
    return alerts.is_array() && !alerts.empty() ? alerts[0] : nlohmann::json::object();
  };
  const std::string ends = alert().value("endsAt", "");
  EXPECT_TRUE(Eventually([&] { return alert().value("endsAt", "") > ends; }));
  const std::string fingerprint = server->Incidents()[0].finding().fingerprint();
  const auto state = [&] {
    return alert().value("status", nlohmann::json::object()).value("state", "");
  };
  EXPECT_EQ(state(), "active");
  const std::string stated = Plumb(
      *server, {"query", "incident", fingerprint, "--silence-until", "1h", "--reason", "known"});
  EXPECT_TRUE(Eventually([&] { return state() == "suppressed"; })) << stated;
  const std::string again =
      Plumb(*server, {"query", "incident", fingerprint, "--reopen", "--reason", "not known"});
  EXPECT_TRUE(Eventually([&] { return state() == "active"; })) << again;
}

TEST_F(AlertsTest, RoutesAreCheckedAndTried) {
  const std::string config = folder_.File("c.toml");
  const auto run = [&](const std::string& flag, const std::string& text) {
    WriteFile(config, text);
    const Ended plumbd = RunToEnd({PLUMBD_PROGRAM, "--config", config, flag});
    return std::make_pair(plumbd.status, plumbd.output + plumbd.errors);
  };
  const auto wrong = run("--check-config", "[[alerts.route]]\nname = \"a\"\nwebhok = \"x\"\n");
  EXPECT_EQ(wrong.first, 2);
  EXPECT_THAT(wrong.second,
              HasSubstr("c.toml:3: alerts.route.webhok: unknown key in [alerts.route]"));
  EXPECT_EQ(run("--check-config", WebhookRoute()).first, 0);
  EXPECT_TRUE(direct_.requests().empty());
  const auto tried = run("--test-alerts", WebhookRoute());
  EXPECT_EQ(tried.first, 0) << tried.second;
  EXPECT_THAT(tried.second, HasSubstr("ok      hook (webhook)"));
  EXPECT_EQ(direct_.Wait(1).at(0)["event"], "test");
  direct_.Answer(403);
  const auto refused = run("--test-alerts", WebhookRoute());
  EXPECT_EQ(refused.first, 1);
  EXPECT_THAT(refused.second, HasSubstr("status 403"));
}

// The snippet of docs/alerts.md accepts the requests of plumbd, and no others.
TEST_F(AlertsTest, TheDocumentedVerificationWorks) {
  auto server = Start(WebhookRoute());
  const v1::Source source = SourceOf("verified");
  AgentStream agent(*server, 10, {source});
  agent.Send(LeakingStep(source, 0), 1);
  ASSERT_EQ(direct_.Wait(1).size(), 1u);
  const ReceivedRequest request = direct_.requests()[0];
  const std::string all = ReadFile(PLUMBLINE_SOURCE_DIR "/docs/alerts.md");
  const size_t begin = all.find("```python\n");
  ASSERT_NE(begin, std::string::npos);
  const size_t code = begin + 10;
  std::ofstream(folder_.File("body")) << request.body;
  std::ofstream(folder_.File("check.py"))
      << all.substr(code, all.find("```", code) - code) << "import sys\n"
      << "body = open(sys.argv[1], 'rb').read()\n"
      << "headers = " << nlohmann::json(request.headers).dump() << "\n"
      << "secret = '" << kSecret << "'\n"
      << "assert verify(secret, headers, body)\n"
      << "assert not verify(secret + 'x', headers, body)\n"
      << "assert not verify(secret, headers, body + b' ')\n"
      << "late = dict(headers)\n"
      << "late['X-Plumbline-Timestamp'] = str(int(headers['X-Plumbline-Timestamp']) - 4000)\n"
      << "assert not verify(secret, late, body)\n"
      << "assert not verify(secret, headers, body, now=time.time() + 4000)\n";
  Process python({"/usr/bin/python3", folder_.File("check.py"), folder_.File("body")});
  EXPECT_EQ(python.Wait(), 0) << python.errors();
}

}  // namespace
}  // namespace plumbline::test
