#include "server/ingest/pacer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <random>

#include "tests/server/support.h"
#include "tests/support/batches.h"

namespace plumbline::server {
namespace {

using std::chrono::seconds;
using Resumes = std::vector<Pacer::Resume>;

constexpr int64_t kWindow = 64;

v1::Hello HelloOf(const std::vector<v1::Source>& sources) {
  v1::Hello hello;
  for (const v1::Source& s : sources) *hello.add_sources() = s;
  return hello;
}

v1::Batch Through(const std::vector<v1::Source>& sources, int64_t step, bool finished = false) {
  v1::Batch batch;
  for (const v1::Source& s : sources) {
    v1::Progress& p = test::AddProgress(&batch, step);
    p.set_source(static_cast<uint32_t>(batch.sources_size()));
    p.set_finished(finished);
    *batch.add_sources() = s;
  }
  return batch;
}

// Streams 1, 2, ... of one rank each, and a clock that is set.
class PacerTest : public ::testing::Test {
 protected:
  v1::Source Rank(uint64_t stream) {
    return test::SourceOf("run", static_cast<uint32_t>(stream), world_);
  }
  void Join(uint64_t stream) { pacer_.Join(stream, Call(stream), HelloOf({Rank(stream)}), &free_); }
  // Reports a batch; returns true if the stream may be read on.
  bool Read(uint64_t stream, int64_t step, uint64_t unsent) {
    return pacer_.Hear(
        stream, Through({Rank(stream)}, step), unsent, [this] { ++resumed_; }, &free_);
  }
  // Returns how many were resumed since the last call.
  int Resumed() {
    for (const auto& resume : std::exchange(free_, {})) resume();
    return std::exchange(resumed_, 0);
  }
  const void* Call(uint64_t stream) { return &calls_[stream]; }
  // Joins through a relay's call, which all streams share.
  void JoinShared(uint64_t stream) {
    v1::Hello hello = HelloOf({Rank(stream)});
    hello.set_shared(true);
    pacer_.Join(stream, Call(0), hello, &free_);
  }

  uint32_t world_ = 0;  // unknown: only joined ranks are expected
  std::array<char, 16> calls_{};
  Pacer::Clock::time_point now_{};
  Pacer pacer_{{kWindow, seconds(5), [this] { return now_; }}};
  Resumes free_;
  int resumed_ = 0;
};

// Its hello may be in the unread part of the call.
TEST_F(PacerTest, ASharedCallDoesNotWaitForARankThatIsNotConnected) {
  world_ = 3;
  for (const uint64_t stream : {1, 2}) JoinShared(stream);
  for (const uint64_t stream : {1, 2}) EXPECT_TRUE(Read(stream, 0, 5));
  pacer_.Leave(2, &free_);
  for (int64_t step = 1; step < 3 * kWindow; ++step) ASSERT_TRUE(Read(1, step, 5)) << step;
  // The stream waits for a rank with a separate connection. It is not ahead of a rank in the same
  // call.
  Join(3);
  EXPECT_TRUE(Read(3, 0, 5));
  EXPECT_FALSE(Read(1, 3 * kWindow, 5));
  EXPECT_EQ(Resumed(), 0);
  pacer_.Leave(3, &free_);
  EXPECT_EQ(Resumed(), 1) << "its hello may follow in the unread part of the call";
}

// Healthy twin: a separate call does wait, since the other hello has a separate call as well.
TEST_F(PacerTest, ACallOfItsOwnWaitsForARankThatIsNotConnected) {
  world_ = 2;
  for (const uint64_t stream : {1, 2}) Join(stream);
  for (const uint64_t stream : {1, 2}) EXPECT_TRUE(Read(stream, 0, 5));
  pacer_.Leave(2, &free_);
  EXPECT_FALSE(Read(1, kWindow, 5));
  EXPECT_EQ(Resumed(), 0);
}

TEST_F(PacerTest, StopsWhoIsAheadOfABacklogUntilItComesCloser) {
  Join(1);
  Join(2);
  EXPECT_TRUE(Read(1, 0, 50));
  EXPECT_TRUE(Read(2, 32, 50));
  EXPECT_FALSE(Read(2, 33, 50));
  EXPECT_EQ(pacer_.stopped(), 1u);
  EXPECT_EQ(Resumed(), 0);
  EXPECT_TRUE(Read(1, 1, 49));
  EXPECT_EQ(Resumed(), 1);
  EXPECT_EQ(pacer_.stopped(), 0u);
}

TEST_F(PacerTest, ARankThatIsSlowByItselfHoldsNone) {
  Join(1);
  Join(2);
  EXPECT_TRUE(Read(1, 0, 0));
  EXPECT_TRUE(Read(2, 60, 50));
}

TEST_F(PacerTest, ACaughtUpStreamLetsGo) {
  Join(1);
  Join(2);
  Read(1, 0, 1);
  EXPECT_FALSE(Read(2, 40, 0));
  EXPECT_TRUE(Read(1, 1, 0));
  EXPECT_EQ(Resumed(), 1);
}

TEST_F(PacerTest, AHeartbeatWithoutBacklogLetsGo) {
  Join(1);
  Join(2);
  Read(1, 0, 1);
  EXPECT_FALSE(Read(2, 40, 0));
  v1::Heartbeat beat;
  beat.set_any_step(true);
  beat.set_newest_step(3);
  beat.set_oldest_unsent_step(1);
  pacer_.Hear(1, beat, &free_);
  EXPECT_EQ(Resumed(), 0);
  beat.set_oldest_unsent_step(4);
  pacer_.Hear(1, beat, &free_);
  EXPECT_EQ(Resumed(), 1);
}

TEST_F(PacerTest, ABacklogHoldsAtAnyLag) {
  Join(1);
  Join(2);
  EXPECT_TRUE(Read(2, 1000, 0));
  EXPECT_TRUE(Read(1, 5, 50));
  EXPECT_FALSE(Read(2, 1001, 0));
  EXPECT_TRUE(Read(1, 900, 49));
  EXPECT_EQ(Resumed(), 0);
  EXPECT_TRUE(Read(1, 969, 48));
  EXPECT_EQ(Resumed(), 1);
}

TEST_F(PacerTest, ARankOfUnknownPlaceStandsWhereTheOthersBegan) {
  Join(1);
  Join(2);
  EXPECT_TRUE(Read(2, 10, 0));
  v1::Hello hello = HelloOf({Rank(1)});
  hello.mutable_state()->set_queued_batches(3);  // it does not report its first step
  pacer_.Join(1, Call(1), hello, &free_);
  EXPECT_TRUE(Read(2, 42, 0));
  EXPECT_FALSE(Read(2, 43, 0));
}

TEST_F(PacerTest, RanksThatHaveNotSentHelloHoldTheOthersForAWhile) {
  world_ = 3;
  Join(0);
  Join(1);
  EXPECT_TRUE(Read(0, 7, 0));
  EXPECT_TRUE(Read(0, 39, 0));
  EXPECT_FALSE(Read(0, 40, 0));
  EXPECT_TRUE(Read(1, 39, 0));
  EXPECT_FALSE(Read(1, 41, 0));
  now_ += seconds(5);
  pacer_.Tick(&free_);
  EXPECT_EQ(Resumed(), 0);
  now_ += seconds(1);
  pacer_.Tick(&free_);
  EXPECT_EQ(Resumed(), 2);
  EXPECT_TRUE(Read(0, 1000, 0));
}

TEST_F(PacerTest, TheLastOneThatSendsHelloLetsGo) {
  world_ = 2;
  Join(0);
  EXPECT_TRUE(Read(0, 0, 0));
  EXPECT_FALSE(Read(0, 50, 0));
  Join(1);
  EXPECT_EQ(Resumed(), 1);
}

TEST_F(PacerTest, WhoTakesARankOverEndsTheWaitForWhoHadIt) {
  Join(1);
  Join(2);
  Read(1, 0, 0);
  Read(2, 0, 0);
  pacer_.Leave(1, &free_);
  EXPECT_FALSE(Read(2, 40, 0));
  pacer_.Join(9, Call(9), HelloOf({Rank(1)}), &free_);  // a new process of the same rank
  pacer_.Hear(9, Through({Rank(1)}, 40), 0, nullptr, &free_);
  EXPECT_EQ(Resumed(), 1);
}

// The state that a restart finds in its journal: each rank's progress, and ranks that are not
// awaited.
TEST_F(PacerTest, AFormerServersRanksAreExpectedWhereTheyWere) {
  world_ = 4;
  constexpr int64_t kNowhere = std::numeric_limits<int64_t>::min();
  pacer_.Restore(0, Rank(0), 100, false, false, &free_);
  pacer_.Restore(1, Rank(1), 90, false, false, &free_);
  pacer_.Restore(2, Rank(2), 50, true, false, &free_);
  pacer_.Restore(3, Rank(3), kNowhere, true, false, &free_);
  Join(0);
  EXPECT_TRUE(Read(0, 122, 0));
  EXPECT_FALSE(Read(0, 123, 0));
  Join(1);
  EXPECT_TRUE(Read(1, 120, 0));
  EXPECT_EQ(Resumed(), 1);
  EXPECT_TRUE(Read(0, 1000, 0));
}

TEST_F(PacerTest, WhoWasGivenUpBeforeIsNotExpectedAgain) {
  world_ = 2;
  pacer_.Restore(0, Rank(0), 100, false, true, &free_);
  Join(0);
  EXPECT_TRUE(Read(0, 1000, 0));
}

TEST_F(PacerTest, WhatIsRestoredLateChangesNothingThatStreamsStated) {
  world_ = 2;
  Join(0);
  Read(0, 7, 0);
  Join(1);
  Read(1, 60, 0);
  pacer_.Restore(0, Rank(0), 3, false, false, &free_);
  pacer_.Restore(77, Rank(1), 3, false, false, &free_);  // an older process of a rank
  EXPECT_TRUE(Read(1, 80, 0));
  EXPECT_EQ(pacer_.streams(), 2u);
}

TEST_F(PacerTest, TheSilentHoldForALimitedTime) {
  Join(1);
  Join(2);
  Read(1, 0, 50);
  EXPECT_FALSE(Read(2, 40, 50));
  now_ += seconds(5);
  pacer_.Tick(&free_);
  EXPECT_EQ(Resumed(), 0);
  now_ += seconds(1);
  pacer_.Tick(&free_);
  EXPECT_EQ(Resumed(), 1);
}

TEST_F(PacerTest, WhoBrokeOffIsWaitedForAsLong) {
  Join(1);
  Join(2);
  Read(1, 0, 0);
  Read(2, 0, 0);
  pacer_.Leave(1, &free_);
  EXPECT_FALSE(Read(2, 40, 0));
  now_ += seconds(6);
  pacer_.Tick(&free_);
  EXPECT_EQ(Resumed(), 1);
  EXPECT_EQ(pacer_.streams(), 1u);
}

TEST_F(PacerTest, ARankThatFinishedHoldsNoneAndIsForgotten) {
  Join(1);
  Join(2);
  pacer_.Hear(1, Through({Rank(1)}, 0, true), 0, nullptr, &free_);
  pacer_.Leave(1, &free_);
  EXPECT_EQ(pacer_.streams(), 1u);
  EXPECT_TRUE(Read(2, 60, 50));
}

TEST_F(PacerTest, AStoppedStreamThatLeavesIsLetGo) {
  Join(1);
  Join(2);
  Read(1, 0, 50);
  EXPECT_FALSE(Read(2, 40, 50));
  pacer_.Leave(2, &free_);
  EXPECT_EQ(Resumed(), 1);
  EXPECT_EQ(pacer_.stopped(), 0u);
}

TEST_F(PacerTest, AHelloStatesWhereTheBacklogBegins) {
  Join(2);
  Read(2, 0, 0);
  v1::Hello hello = HelloOf({Rank(1)});
  hello.mutable_state()->set_queued_batches(3);
  hello.mutable_state()->set_any_step(true);
  hello.mutable_state()->set_newest_step(7);
  hello.mutable_state()->set_oldest_unsent_step(0);
  pacer_.Join(1, Call(1), hello, &free_);
  EXPECT_TRUE(Read(2, 31, 0));
  EXPECT_FALSE(Read(2, 32, 0));
}

TEST_F(PacerTest, StreamsOfOneCallStopWhenTheSlowestIsAhead) {
  for (const uint64_t stream : {1, 2, 3}) {
    pacer_.Join(stream, Call(stream == 1 ? 1 : 2), HelloOf({Rank(stream)}), &free_);
  }
  Read(1, 0, 50);
  Read(3, 10, 50);
  EXPECT_TRUE(Read(2, 50, 50));  // the needed batches follow it in the call
  EXPECT_FALSE(Read(3, 40, 50));
}

TEST_F(PacerTest, OtherRunsRolesAndAttemptsAreOthers) {
  Join(1);
  Read(1, 0, 50);
  v1::Source other_run = test::SourceOf("other"), attempt = test::SourceOf("run", 0, 8, 1);
  v1::Source role = test::SourceOf("run");
  role.set_role(v1::ROLE_ROLLOUT);
  for (const v1::Source& source : {other_run, attempt, role}) {
    pacer_.Join(2, Call(2), HelloOf({source}), &free_);
    EXPECT_TRUE(pacer_.Hear(
        2, Through({source}, 1000), 50, [] {}, &free_));
  }
}

TEST_F(PacerTest, StepsWithoutACounterDoNoHarm) {
  Join(1);
  Join(2);
  using Limits = std::numeric_limits<int64_t>;
  for (const int64_t step : {Limits::min(), Limits::max(), Limits::max() - 1, int64_t{-5}}) {
    EXPECT_TRUE(Read(1, step, 3));
    EXPECT_TRUE(Read(2, step, 3));
  }
  EXPECT_TRUE(Read(1, 0, 3));
  EXPECT_FALSE(Read(2, 33, 3));
}

// Streams with a large backlog, read in an order that favours some. Everything is read, and no
// stream is further ahead of the slowest than half a window and one batch.
TEST_F(PacerTest, RandomReadersDrainWithinHalfAWindow) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    Pacer pacer({kWindow, seconds(5), [this] { return now_; }});
    constexpr int64_t kSteps = 500;
    const size_t streams = 2 + random() % 7;
    const int64_t batch = 1 + static_cast<int64_t>(random() % 16);
    std::vector<int64_t> at(streams, 0);
    std::vector<bool> stopped(streams, false);
    v1::Heartbeat state;
    state.set_queued_batches(1);
    state.set_any_step(true);
    state.set_newest_step(kSteps);
    for (size_t s = 0; s < streams; ++s) {
      v1::Hello hello = HelloOf({Rank(s)});
      *hello.mutable_state() = state;
      pacer.Join(s, Call(s), hello, &free_);
    }
    while (*std::min_element(at.begin(), at.end()) < kSteps) {
      const size_t s = std::min(random() % streams, random() % streams);
      if (stopped[s] || at[s] >= kSteps) {
        const bool stuck = std::all_of(stopped.begin(), stopped.end(), [](bool b) { return b; });
        ASSERT_FALSE(stuck) << seed;
        continue;
      }
      at[s] = std::min(at[s] + batch, kSteps);
      Resumes free;
      const v1::Batch read = Through({Rank(s)}, at[s] - 1, at[s] == kSteps);
      stopped[s] = !pacer.Hear(
          s, read, at[s] == kSteps ? 0 : 1, [&stopped, s] { stopped[s] = false; }, &free);
      for (const auto& resume : free) resume();
      const int64_t slowest = *std::min_element(at.begin(), at.end());
      ASSERT_LE(at[s] - slowest, kWindow / 2 + batch) << seed;
    }
    EXPECT_EQ(pacer.stopped(), 0u);
  }
}

}  // namespace
}  // namespace plumbline::server
