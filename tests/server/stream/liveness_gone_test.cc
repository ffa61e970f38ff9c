// Ranks that are gone, silent, or have sent a goodbye; and ranks that are left of an earlier
// attempt.
#include <gtest/gtest.h>

#include "analysis/processes/hang_verdict.h"
#include "tests/server/stream/liveness_run.h"

namespace plumbline::server {
namespace {

TEST_F(LivenessTest, GoneIsNotUnreachable) {
  Begin(2);
  Train(20);
  Leave(1);  // while it sent heartbeats
  ranks_[1].beats = false;
  Pass(milliseconds(12000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(reported_[0].cause(), v1::RanksHung::CAUSE_GONE);
  EXPECT_EQ(Of(reported_[0].ranks()), (std::vector<uint32_t>{1}));
  EXPECT_EQ(analysis::HangVerdict(reported_[0]).finding().cause().id(), "process-gone");
  EXPECT_EQ(State("gone"), 1u);
}

// Stopped by a signal or a debugger: its connection stays open, and nothing arrives. It is reported
// as soon as another blocked rank would be, as silent and not as disconnected, with the time of its
// silence.
TEST_F(LivenessTest, WhoFallsSilentIsNamedWhereTheOthersStand) {
  Begin(2);
  Train(20);
  Train(1, {1});
  ranks_[1].beats = false;
  Pass(milliseconds(9000));
  EXPECT_TRUE(reported_.empty());
  EXPECT_EQ(State("silent"), 1u);
  Pass(milliseconds(2000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(reported_[0].cause(), v1::RanksHung::CAUSE_UNREACHABLE);
  EXPECT_EQ(Of(reported_[0].ranks()), (std::vector<uint32_t>{1}));
  EXPECT_EQ(Of(reported_[0].waiting()), (std::vector<uint32_t>{0}));
  EXPECT_GE(reported_[0].still_ns(), 10'000'000'000u);
  EXPECT_LE(reported_[0].still_ns(), 11'000'000'000u);
  EXPECT_EQ(analysis::HangVerdict(reported_[0]).finding().cause().id(), "network-lost");
  // Reported once, also when keepalive gives up.
  Pass(milliseconds(10000));
  Leave(1);
  EXPECT_EQ(State("unreachable"), 1u);
  Pass(milliseconds(12000));
  EXPECT_EQ(reported_.size(), 1u);
}

// The process was busy and sent only batches, so no heartbeat reported the number of ended steps.
TEST_F(LivenessTest, WhoFallsSilentNeedNotHaveSentHeartbeats) {
  Begin(2);
  ranks_[1].beats = false;
  Train(20, {}, milliseconds(250));
  Train(1, {1}, milliseconds(250));
  Pass(milliseconds(11000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(Of(reported_[0].ranks()), (std::vector<uint32_t>{1}));
}

// Disconnected since: the pause counts from its last message.
TEST_F(LivenessTest, ThePauseOfOneThatWasLostBeginsWithItsSilence) {
  Begin(2);
  Train(20, {}, milliseconds(4000));  // five steps are longer than hang_seconds
  Train(1, {1});
  ranks_[1].beats = false;
  Pass(milliseconds(12000));
  EXPECT_TRUE(reported_.empty());
  Leave(1);
  Pass(milliseconds(10000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(reported_[0].cause(), v1::RanksHung::CAUSE_UNREACHABLE);
  EXPECT_GE(reported_[0].still_ns(), 20'000'000'000u);
  EXPECT_LE(reported_[0].still_ns(), 21'000'000'000u);
}

// All ranks were blocked long before one fell silent. The cause is unknown, so no rank is named.
TEST_F(LivenessTest, WhoFallsSilentAfterAllStoodIsNotNamed) {
  Begin(2);
  Train(5);  // the pace is unknown, so this is reported after five minutes at the earliest
  Pass(milliseconds(100000));
  ranks_[1].beats = false;
  Pass(milliseconds(600000));
  EXPECT_TRUE(reported_.empty());
}

TEST_F(LivenessTest, ASilentOneNextToOneThatGoesOnIsNotNamed) {
  Begin(3);
  Train(20);
  ranks_[1].beats = false;
  Train(60, {1});
  EXPECT_TRUE(reported_.empty());
  // If all are silent, no rank is named either: all networks are lost, or that of this server.
  for (Rank& rank : ranks_) rank.beats = false;
  Pass(milliseconds(100000));
  EXPECT_TRUE(reported_.empty());
}

TEST_F(LivenessTest, WithoutAWaiterNoRankIsReported) {
  Begin(2);
  Train(20);
  for (uint32_t r = 0; r < 2; ++r) {
    Leave(r);
    ranks_[r].beats = false;
  }
  Pass(milliseconds(100000));
  EXPECT_TRUE(reported_.empty()) << "the job ended";
}

TEST_F(LivenessTest, WhoIsLeftOfAnEarlierAttemptIsNotWaitedFor) {
  Begin(2);
  Train(20);
  Join(0, 1);
  Join(1, 1);
  Pass(milliseconds(60000));  // the old processes send heartbeats, and are blocked
  EXPECT_TRUE(reported_.empty());
}

TEST_F(LivenessTest, ARankThatSentGoodbyeIsNotWaitedFor) {
  Begin(2);
  Train(20);
  v1::Batch goodbye;
  goodbye.add_progress()->set_newest_step(ranks_[0].step);
  goodbye.mutable_progress(0)->set_finished(true);
  live_.Heard(1, goodbye, now_);  // its connection stays open
  Train(1, {0});
  Pass(milliseconds(12000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(Of(reported_[0].ranks()), (std::vector<uint32_t>{1}));
}

TEST_F(LivenessTest, TheEndOfAnOlderConnectionIsNotTheProcess) {
  Begin(2);
  Train(20);
  Join(0, 0, 2);  // it is back before the old connection was known to be broken
  live_.Left(1, 1, now_);
  EXPECT_EQ(State("running"), 2u);
}

}  // namespace
}  // namespace plumbline::server
