// plumbd with --data: everything acknowledged exists after kill -9, with the same meaning.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "audit/live/doctor_batch.h"
#include "rules/engine/engine.h"
#include "tests/server/support.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

// Returns equal text for equal messages: maps are sorted.
std::string Text(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  printer.PrintToString(message, &text);
  return text;
}

// A plumbd that is killed and started again over the same data.
class DurableTest : public testing::Test {
 protected:
  void SetUp() override { Start(); }
  void TearDown() override {
    if (HasFailure() && server_)
      ADD_FAILURE() << "plumbd printed:\n" << server_->process().errors();
  }

  void Start(std::vector<std::string> more = {}) {
    std::vector<std::string> options = {"--data", Data()};
    if (more.empty()) more = {"--grace", "60"};  // longer than any test
    options.insert(options.end(), more.begin(), more.end());
    server_ = std::make_unique<Plumbd>(options);
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  void Kill() {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
  }
  std::string Data() const { return folder_.File("data"); }
  bool Judged(const std::string& run, uint64_t evidence, int64_t step) {
    return Eventually([&] {
      const auto info = server_->Run(run);
      return info && info->evidence() == evidence && info->closed_step() >= step;
    });
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
};

TEST_F(DurableTest, WhatWasAcknowledgedIsThereAfterAKill) {
  const v1::Source source = SourceOf("kept");
  {
    AgentStream agent(*server_, 61, {source});
    for (uint64_t s = 1; s <= 8; ++s) {
      agent.Send(LeakingStep(source, static_cast<int64_t>(s)), s);
    }
    ASSERT_TRUE(agent.Acknowledged(8));
    ASSERT_TRUE(Judged("kept", 8, 8));
  }
  const auto before = server_->Incidents("kept");
  const auto verdicts = server_->Verdicts("kept");
  ASSERT_FALSE(before.empty());
  Kill();
  Start();
  ASSERT_TRUE(Judged("kept", 8, 8));
  const auto after = server_->Incidents("kept");
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) {
    // Also times and numbers, which belong to the evidence and not to the process.
    EXPECT_EQ(Text(after[i]), Text(before[i]));
  }
  EXPECT_EQ(Text(server_->Verdicts("kept")), Text(verdicts));

  // The stream continues at its position. Batches that it sends again are counted and judged once.
  AgentStream agent(*server_, 61, {source}, 5);
  uint64_t held = 0;
  ASSERT_TRUE(agent.Welcomed(&held));
  EXPECT_EQ(held, 8u);
  for (uint64_t s = 5; s <= 9; ++s) agent.Send(LeakingStep(source, static_cast<int64_t>(s)), s);
  agent.Send(Goodbye(source, 9), 10);
  ASSERT_TRUE(agent.Acknowledged(10));
  ASSERT_TRUE(Judged("kept", 9, 9));
  EXPECT_EQ(server_->Info().duplicates(), 4u);
  EXPECT_EQ(server_->Incidents("kept", audit::kDoctorRule)[0].count(), 9u);
}

TEST_F(DurableTest, WhatTheClockDecidedIsNotDecidedAgain) {
  Kill();
  Start({"--grace", "0.3"});
  const v1::Source rank0 = SourceOf("gone", 0, 2), rank1 = SourceOf("gone", 1, 2);
  {
    AgentStream agent0(*server_, 62, {rank0}), agent1(*server_, 63, {rank1});
    ASSERT_TRUE(agent0.Welcomed());  // otherwise the run would be over with rank 1
    agent1.Send(ScalarStep(rank1, 0), 1);
    ASSERT_TRUE(agent1.Acknowledged(1));
    agent1.Break();
    for (uint64_t s = 1; s <= 4; ++s) {
      agent0.Send(LeakingStep(rank0, static_cast<int64_t>(s) - 1), s);
    }
    ASSERT_TRUE(Judged("gone", 5, 3));  // closed over rank 1
    agent0.Send(Goodbye(rank0, 3), 5);
    ASSERT_TRUE(agent0.Acknowledged(5));
    ASSERT_TRUE(Eventually([&] {
      return server_->process().errors().find("run \"gone\": over") != std::string::npos;
    }));
  }
  const auto before = server_->Incidents("gone");
  const std::string verdicts = Text(server_->Verdicts("gone"));
  Kill();
  Start({"--grace", "3600"});  // so that the clock would never have decided it
  ASSERT_TRUE(Eventually([&] { return Text(server_->Verdicts("gone")) == verdicts; }));
  const auto after = server_->Incidents("gone");
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(Text(after[i]), Text(before[i]));
  }
}

TEST_F(DurableTest, ARefusedBatchStaysRefused) {
  const v1::Source source = SourceOf("refused");
  {
    AgentStream agent(*server_, 64, {source});
    v1::Batch bad = ScalarStep(source, 0);
    bad.mutable_evidence(0)->set_source(7);
    agent.Send(ScalarStep(source, 0), 1);
    agent.Send(bad, 2);
    EXPECT_THAT(agent.RejectedReason(2), HasSubstr("source: 7"));
    ASSERT_TRUE(agent.Acknowledged(2));
  }
  Kill();
  Start();
  AgentStream agent(*server_, 64, {source}, 2);
  uint64_t held = 0;
  ASSERT_TRUE(agent.Welcomed(&held));
  EXPECT_EQ(held, 2u);
}

// The server listens before it has judged its journal again. Queries wait until it has.
TEST_F(DurableTest, ASubscriberAfterARestartLearnsAllThatWasFound) {
  const v1::Source source = SourceOf("long");
  const uint64_t steps = std::getenv("PLUMB_LONG") != nullptr ? 3000 : 1000;
  {
    AgentStream agent(*server_, 66, {source});
    for (uint64_t s = 1; s <= steps; ++s) {
      const char* layer = s < steps ? "layers.0" : "layers.9";
      ASSERT_TRUE(agent.Send(LeakingStep(source, static_cast<int64_t>(s), layer), s));
    }
    ASSERT_TRUE(Judged("long", steps, static_cast<int64_t>(steps)));
  }
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"query"}, {"watch", "--once"}}) {
    Kill();
    Start();
    std::vector<std::string> words = {PLUMB_PROGRAM, command[0], "--server", server_->address()};
    words.insert(words.end(), command.begin() + 1, command.end());
    Ended plumb;
    ASSERT_TRUE(Eventually([&] {  // on a slow machine it reports that it is not done
      plumb = RunToEnd(words);
      return plumb.status != 2 || plumb.errors.find("still judges") == std::string::npos;
    }));
    EXPECT_EQ(plumb.status, 0) << plumb.errors;
    EXPECT_THAT(plumb.output, HasSubstr("layers.9"));
  }
}

TEST_F(DurableTest, OneServerADirectory) {
  Process second({PLUMBD_PROGRAM, "--grpc", "127.0.0.1:0", "--http", "off", "--data", Data()});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.errors(), HasSubstr("another plumbd uses this data directory"));
}

TEST_F(DurableTest, RestartsWithoutANewEntryChangeNothing) {
  const v1::Source source = SourceOf("idle");
  {
    AgentStream agent(*server_, 65, {source});
    agent.Send(ScalarStep(source, 0), 1);
    agent.Send(Goodbye(source, 0), 2);
    ASSERT_TRUE(agent.Acknowledged(2));
  }
  ASSERT_TRUE(Judged("idle", 1, 0));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(server_->Stop(), 0);
    Start();
    ASSERT_TRUE(Judged("idle", 1, 0));
  }
}

TEST_F(DurableTest, ACheckpointTakesThePlaceOfWhatIsBeforeIt) {
  Kill();
  std::ofstream(folder_.File("plumbd.toml")) << "[checkpoint]\nseconds = 0.05\n";
  Start({"--config", folder_.File("plumbd.toml"), "--grace", "30"});
  const v1::Source source = SourceOf("checked");
  {
    AgentStream agent(*server_, 66, {source});
    for (uint64_t s = 1; s <= 20; ++s) {
      agent.Send(LeakingStep(source, static_cast<int64_t>(s)), s);
    }
    ASSERT_TRUE(agent.Acknowledged(16));
    ASSERT_TRUE(Judged("checked", 20, 20));
  }
  ASSERT_TRUE(Eventually([&] {
    std::error_code error;
    for (const auto& file : std::filesystem::directory_iterator(Data() + "/checkpoint", error)) {
      if (file.path().filename().string().find("00020-") != std::string::npos) return true;
    }
    return false;
  }));
  const auto before = server_->Incidents("checked");
  Kill();
  Start();
  EXPECT_TRUE(Eventually([&] {
    return server_->process().errors().find(" 0 entries of the journal judged again") !=
           std::string::npos;
  }));
  EXPECT_THAT(server_->process().errors(), HasSubstr("checkpoint at entry 20 loaded"));
  const auto after = server_->Incidents("checked");
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(Text(after[i]), Text(before[i]));
  // Later evidence continues from there.
  AgentStream agent(*server_, 66, {source}, 21);
  agent.Send(LeakingStep(source, 21), 21);
  agent.Send(Goodbye(source, 21), 22);
  ASSERT_TRUE(agent.Acknowledged(22));
  ASSERT_TRUE(Judged("checked", 21, 21));
  EXPECT_EQ(server_->Incidents("checked", audit::kDoctorRule)[0].count(), 21u);
}

TEST_F(DurableTest, ADamagedCheckpointIsPassedOver) {
  const v1::Source source = SourceOf("worn");
  {
    AgentStream agent(*server_, 67, {source});
    agent.Send(LeakingStep(source, 0), 1);
    agent.Send(Goodbye(source, 0), 2);
    ASSERT_TRUE(agent.Acknowledged(2));
    ASSERT_TRUE(Judged("worn", 1, 0));
  }
  // A decision that is made while the journal stops is lost. Then there is no last checkpoint.
  ASSERT_TRUE(Eventually(
      [&] { return server_->process().errors().find("run \"worn\": over") != std::string::npos; }));
  ASSERT_EQ(server_->Stop(), 0);  // writes a checkpoint
  int damaged = 0;
  for (const auto& file : std::filesystem::directory_iterator(Data() + "/checkpoint")) {
    std::filesystem::resize_file(file.path(), std::filesystem::file_size(file.path()) - 1);
    ++damaged;
  }
  ASSERT_GT(damaged, 0);
  Start();
  ASSERT_TRUE(Judged("worn", 1, 0));
  EXPECT_THAT(server_->process().errors(), HasSubstr("is not used"));
  EXPECT_FALSE(server_->Incidents("worn", audit::kDoctorRule).empty());
}

// Rows of a set that was declared before the restart.
TEST_F(DurableTest, SeriesSetsOutliveTheProcess) {
  const v1::Source source = SourceOf("columns");
  const auto step = [&](int64_t n, bool declares) {
    v1::Batch batch = ScalarStep(source, n);
    if (declares) {
      v1::SeriesSet& set = *batch.add_series_sets();
      set.set_id(5);
      set.add_sites()->set_op("a");
      set.add_sites()->set_op("b");
    }
    v1::SeriesRows& rows = *batch.add_series();
    rows.set_set(5);
    rows.add_source(0);
    rows.add_step(n);
    rows.add_value(1);
    rows.add_value(2);
    return batch;
  };
  {
    AgentStream agent(*server_, 68, {source});
    agent.Send(step(0, false), 1);
    EXPECT_THAT(agent.RejectedReason(1), HasSubstr("was not declared on this stream"));
    agent.Send(step(0, true), 2);
    ASSERT_TRUE(agent.Acknowledged(2));
  }
  Kill();
  Start();
  AgentStream agent(*server_, 68, {source}, 3);
  agent.Send(step(1, false), 3);
  agent.Send(Goodbye(source, 1), 4);
  ASSERT_TRUE(agent.Acknowledged(4));
  EXPECT_EQ(server_->Info().dropped().at("rejected-batches"), 0u);
}

// The result of ReadRun, judged again, gives the findings of the server.
TEST_F(DurableTest, ARunIsReadAsItWasJudged) {
  Kill();
  Start({"--grace", "0.3"});
  const v1::Source rank0 = SourceOf("read", 0, 2), rank1 = SourceOf("read", 1, 2);
  const v1::Source other = SourceOf("other");
  // Connected until the end of the test: only rank 1 ever disconnects.
  AgentStream agent0(*server_, 71, {rank0}), agent1(*server_, 72, {rank1});
  AgentStream another(*server_, 73, {other});
  ASSERT_TRUE(agent0.Welcomed());
  agent1.Send(ScalarStep(rank1, 0), 1);
  ASSERT_TRUE(agent1.Acknowledged(1));
  agent1.Break();
  for (uint64_t s = 1; s <= 4; ++s) {
    agent0.Send(LeakingStep(rank0, static_cast<int64_t>(s) - 1), s);
    another.Send(LeakingStep(other, static_cast<int64_t>(s) - 1), s);
  }
  ASSERT_TRUE(Judged("read", 5, 3));
  ASSERT_TRUE(Judged("other", 4, 3));
  grpc::ClientContext context;
  v1::ReadRunRequest request;
  request.set_run("read");
  auto stub = v1::Query::NewStub(server_->Channel());
  auto stream = stub->ReadRun(&context, request);
  std::map<std::string, uint64_t> counts;
  auto engine = rules::Engine::Create({}, [&](const v1::Verdict& verdict) {
    if (verdict.kind() == v1::Verdict::KIND_FINDING) ++counts[verdict.finding().fingerprint()];
  });
  v1::ReadRunResponse response;
  int batches = 0, gone = 0;
  bool ended = false;
  while (stream->Read(&response)) {
    if (response.has_header()) {
      EXPECT_EQ(response.header().oldest_entry(), 1u);
      EXPECT_EQ(response.header().gaps_size(), 0);
    }
    ended |= response.has_end();
    if (!response.has_item()) continue;
    if (!response.item().has_event()) {
      v1::Batch batch;
      ASSERT_TRUE(batch.ParseFromString(response.item().batch()));
      EXPECT_EQ(batch.sources(0).run(), "read");
      ASSERT_TRUE((*engine)->Add(std::move(batch)).ok());
      ++batches;
      continue;
    }
    for (const v1::Source& source : response.item().event().ranks_gone().sources()) {
      EXPECT_EQ(source.rank(), 1u);
      (*engine)->MarkGone(source);
      ++gone;
    }
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(ended);
  EXPECT_EQ(batches, 5);
  EXPECT_EQ(gone, 1);
  std::map<std::string, uint64_t> found;
  for (const v1::Incident& incident : server_->Incidents("read")) {
    found[incident.finding().fingerprint()] = incident.count();
  }
  EXPECT_FALSE(found.empty());
  EXPECT_EQ(counts, found);
}

TEST_F(DurableTest, ADamagedEntryIsALossThatEveryoneSees) {
  const v1::Source source = SourceOf("torn");
  {
    AgentStream agent(*server_, 74, {source});
    for (uint64_t s = 1; s <= 8; ++s) {
      agent.Send(LeakingStep(source, static_cast<int64_t>(s)), s);
    }
    ASSERT_TRUE(agent.Acknowledged(8));
  }
  Kill();
  std::string path;
  for (const auto& file : std::filesystem::directory_iterator(Data() + "/journal")) {
    if (file.path().extension() == ".plj") path = file.path().string();
  }
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path) / 2));
    file.put('#');
  }
  Start();
  ASSERT_TRUE(Judged("torn", 7, 8));
  EXPECT_THAT(server_->process().errors(), HasSubstr(path + ": byte "));
  const auto info = server_->Run("torn");
  ASSERT_EQ(info->gaps_size(), 1);
  EXPECT_THAT(info->gaps(0).reason(), HasSubstr("journal-damaged"));
  // The stream continues after it.
  AgentStream agent(*server_, 74, {source}, 9);
  uint64_t held = 0;
  ASSERT_TRUE(agent.Welcomed(&held));
  EXPECT_EQ(held, 8u);
}

}  // namespace
}  // namespace plumbline::test
