// plumbd with --data: what was acknowledged is there after kill -9, and means the same.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "audit/live/doctor_batch.h"
#include "tests/server/support.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

// Equal messages have equal text: maps in order.
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
    if (HasFailure() && server_) ADD_FAILURE() << "plumbd said:\n" << server_->process().errors();
  }

  void Start(std::vector<std::string> more = {}) {
    std::vector<std::string> options = {"--data", Data()};
    if (more.empty()) more = {"--grace", "0.3"};
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
    // Times and numbers too: they are those of the evidence, not of the process.
    EXPECT_EQ(Text(after[i]), Text(before[i]));
  }
  EXPECT_EQ(Text(server_->Verdicts("kept")), Text(verdicts));

  // The stream goes on where it was; what it sends again is counted and judged once.
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
  const v1::Source rank0 = SourceOf("gone", 0, 2), rank1 = SourceOf("gone", 1, 2);
  {
    AgentStream agent0(*server_, 62, {rank0}), agent1(*server_, 63, {rank1});
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
  Start({"--grace", "3600"});  // with which the clock would never have decided it
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

TEST_F(DurableTest, OneServerADirectory) {
  Process second({PLUMBD_PROGRAM, "--grpc", "127.0.0.1:0", "--http", "off", "--data", Data()});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.errors(), HasSubstr("another plumbd keeps its journal there"));
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

}  // namespace
}  // namespace plumbline::test
