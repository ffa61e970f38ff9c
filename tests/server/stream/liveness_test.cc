// Who hangs, who is gone, who is late: by heartbeats and a clock of the test's own.
#include "server/stream/liveness.h"

#include <gtest/gtest.h>

#include <set>

#include "analysis/processes/hang_verdict.h"

namespace plumbline::server {
namespace {

using std::chrono::milliseconds;

// A run of processes that beat each 500 ms, observed every 500 ms.
class LivenessTest : public ::testing::Test {
 protected:
  explicit LivenessTest(Liveness::Nanos hang = std::chrono::seconds(10)) : live_(hang) {}

  struct Rank {
    int64_t step = -1, ended = 0;
    Liveness::Time moved{};
    v1::Span::Kind stage = v1::Span::KIND_UNSPECIFIED;
    bool beats = true;
  };

  void Begin(uint32_t ranks, const std::string& run = "r") {
    run_ = run;
    ranks_.resize(ranks);
    for (uint32_t r = 0; r < ranks; ++r) Join(r);
  }
  void Join(uint32_t rank, uint32_t attempt = 0, uint64_t connection = 1) {
    v1::Hello hello;
    hello.set_stream_id(100 * attempt + rank + 1);
    v1::Source& source = *hello.add_sources();
    source.set_run(run_);
    source.set_rank(rank);
    source.set_attempt(attempt);
    source.set_role(v1::ROLE_TRAINER);
    live_.Joined(hello, connection, now_);
  }
  void Leave(uint32_t rank) { live_.Left(rank + 1, 1, now_); }

  // Each rank ends its step and begins the next, `steps` times, one a tick; those in `stuck` do
  // not.
  void Train(int steps, std::set<uint32_t> stuck = {}, milliseconds each = milliseconds(500)) {
    for (int i = 0; i < steps; ++i) {
      for (uint32_t r = 0; r < ranks_.size(); ++r) {
        if (stuck.count(r) != 0) continue;
        Rank& rank = ranks_[r];
        if (rank.step >= 0) ++rank.ended;
        ++rank.step;
        rank.moved = now_;
        v1::Batch batch;
        v1::Progress& progress = *batch.add_progress();
        progress.set_newest_step(rank.step);
        progress.set_complete_through(rank.step - 1);
        progress.set_any_step(rank.ended > 0);
        live_.Heard(r + 1, batch, now_);
      }
      Pass(each);
    }
  }

  // Time goes by; ranks that beat say how they stand. What is told meanwhile is kept.
  // They end the step that they are in, and stay there.
  void EndStep(std::initializer_list<uint32_t> ranks) {
    for (const uint32_t r : ranks) {
      v1::Batch batch;
      v1::Progress& progress = *batch.add_progress();
      progress.set_newest_step(ranks_[r].step);
      progress.set_complete_through(ranks_[r].step);
      progress.set_any_step(true);
      live_.Heard(r + 1, batch, now_);
      ranks_[r].stage = v1::Span::KIND_OTHER;
    }
  }

  void Pass(milliseconds time) {
    for (milliseconds left = time; left > milliseconds(0); left -= milliseconds(250)) {
      now_ += milliseconds(250);
      for (uint32_t r = 0; r < ranks_.size(); ++r) {
        const Rank& rank = ranks_[r];
        if (!rank.beats) continue;
        v1::Heartbeat beat;
        beat.set_any_step(rank.step >= 0);
        beat.set_newest_step(rank.step);
        beat.set_still_ns(static_cast<uint64_t>((now_ - rank.moved).count()));
        beat.set_open_stage(rank.stage);
        beat.set_steps_ended(rank.ended);
        live_.Heard(r + 1, beat, now_);
      }
      for (v1::RanksHung& hung : live_.Look(now_)) told_.push_back(std::move(hung));
    }
  }

  uint64_t State(const std::string& state) { return live_.States(run_, now_)[state]; }

  Liveness live_;
  Liveness::Time now_{std::chrono::hours(1)};
  std::string run_;
  std::vector<Rank> ranks_;
  std::vector<v1::RanksHung> told_;
};

template <typename List>
std::vector<uint32_t> Of(const List& list) {
  return {list.begin(), list.end()};
}

TEST_F(LivenessTest, TheRankThatStandsIsNamedAndTheOthersWait) {
  Begin(4);
  Train(20);
  Train(1, {2});  // the others begin the next step, and wait in it
  Pass(milliseconds(9000));
  EXPECT_TRUE(told_.empty());
  Pass(milliseconds(3000));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(Of(told_[0].ranks()), (std::vector<uint32_t>{2}));
  EXPECT_EQ(Of(told_[0].waiting()), (std::vector<uint32_t>{0, 1, 3}));
  EXPECT_EQ(told_[0].step(), 19);
  EXPECT_EQ(told_[0].cause(), v1::RanksHung::CAUSE_STUCK);
  EXPECT_EQ(State("still"), 4u);
  const v1::Verdict verdict = rules::HangVerdict(told_[0]);
  EXPECT_EQ(verdict.finding().level(), v1::LEVEL_ERROR);
  EXPECT_EQ(verdict.finding().strength(), v1::STRENGTH_BOUNDED);
  EXPECT_EQ(Of(verdict.site().ranks()), (std::vector<uint32_t>{2}));
  EXPECT_EQ(verdict.details().fields().at("kind").string_value(), "not-launched");
  // Told once; and again when it hangs again, longer than the pause that it came back from.
  Pass(milliseconds(60000));
  EXPECT_EQ(told_.size(), 1u);
  Train(1, {0, 1, 3});  // it comes back
  Train(20);
  Train(1, {1});
  Pass(milliseconds(100000));
  EXPECT_EQ(told_.size(), 1u) << "the run came back from a pause of 72 s";
  Pass(milliseconds(60000));
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(Of(told_[1].ranks()), (std::vector<uint32_t>{1}));
}

TEST_F(LivenessTest, AllInOneStepNameNobodyAndBecomeAnErrorLate) {
  Begin(2);
  Train(20);
  Pass(milliseconds(12000));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_TRUE(told_[0].ranks().empty());
  EXPECT_EQ(rules::HangVerdict(told_[0]).finding().level(), v1::LEVEL_WARNING);
  Pass(milliseconds(300000));
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(rules::HangVerdict(told_[1]).finding().level(), v1::LEVEL_ERROR);
}

// In one step, and the others within a collective: who is not in it is awaited.
TEST_F(LivenessTest, WhoHasNotEnteredTheCollectiveIsNamed) {
  Begin(4);
  Train(20);
  for (const uint32_t waits : {0u, 2u, 3u}) ranks_[waits].stage = v1::Span::KIND_COLLECTIVE;
  Pass(milliseconds(9000));
  EXPECT_TRUE(told_.empty());
  Pass(milliseconds(3000));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(Of(told_[0].ranks()), (std::vector<uint32_t>{1}));
  EXPECT_EQ(Of(told_[0].waiting()), (std::vector<uint32_t>{0, 2, 3}));
  EXPECT_EQ(rules::HangVerdict(told_[0]).finding().level(), v1::LEVEL_ERROR);
}

// All are within it: nobody is named. And a declared stage says more than a collective.
TEST_F(LivenessTest, ACollectiveOfAllNamesNobodyAndACheckpointExcuses) {
  Begin(3);
  Train(20);
  for (Rank& rank : ranks_) rank.stage = v1::Span::KIND_COLLECTIVE;
  ranks_[1].stage = v1::Span::KIND_CHECKPOINT;
  Pass(milliseconds(30000));
  EXPECT_TRUE(told_.empty());
  ranks_[1].stage = v1::Span::KIND_COLLECTIVE;
  Pass(milliseconds(3000));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_TRUE(told_[0].ranks().empty());
}

TEST_F(LivenessTest, SlowStepsNeedFiveOfThem) {
  Begin(2);
  Train(10, {}, milliseconds(20000));
  EXPECT_TRUE(told_.empty());
  Train(1, {0}, milliseconds(60000));
  EXPECT_TRUE(told_.empty());
  Pass(milliseconds(50000));
  EXPECT_EQ(told_.size(), 1u);
}

// Late, not hung: one rank writes a checkpoint, the others wait for it.
TEST_F(LivenessTest, WithinADeclaredStageNobodyHangs) {
  Begin(4);
  for (const auto stage :
       {v1::Span::KIND_CHECKPOINT, v1::Span::KIND_EVALUATION, v1::Span::KIND_COMPILE}) {
    Train(20);
    ranks_[0].stage = stage;
    Train(1, {0});
    Pass(milliseconds(2500));
    EXPECT_EQ(State("late"), 1u);
    Pass(milliseconds(600000));
    EXPECT_TRUE(told_.empty()) << v1::Span::Kind_Name(stage);
    ranks_[0].stage = v1::Span::KIND_UNSPECIFIED;
    ranks_[0].moved = now_;  // the step ends with its stage
  }
  // A stage of another kind excuses nobody.
  Train(20);
  ranks_[0].stage = v1::Span::KIND_DATA;
  Train(1, {0});
  Pass(milliseconds(12000));
  EXPECT_EQ(told_.size(), 1u);
}

TEST_F(LivenessTest, AFirstStepMayTakeItsTime) {
  Begin(2);
  Train(1);
  Pass(milliseconds(600000));  // compiles
  EXPECT_TRUE(told_.empty());
  // And so may that of a process that has come back, while the others wait.
  Train(20);
  Leave(1);
  ranks_[1].ended = 0;
  Join(1);
  Train(1, {1});
  Pass(milliseconds(600000));
  EXPECT_TRUE(told_.empty());
}

// A notebook between two cells, a loop that has ended, a person who thinks.
class BetweenStepsTest : public LivenessTest, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(BetweenStepsTest, NobodyHangs) {
  Begin(GetParam());
  Train(20);
  for (Rank& rank : ranks_) rank.stage = v1::Span::KIND_OTHER;
  Pass(milliseconds(12000));
  EXPECT_EQ(State("idle"), GetParam());
  Pass(milliseconds(3600000));
  EXPECT_TRUE(told_.empty());
  // The next cell: there it may hang, however long it was idle.
  for (Rank& rank : ranks_) rank.stage = v1::Span::KIND_UNSPECIFIED;
  Train(1);
  Pass(milliseconds(12000));
  EXPECT_EQ(told_.size(), 1u);
}
INSTANTIATE_TEST_SUITE_P(Ranks, BetweenStepsTest, ::testing::Values(1u, 4u));

// The others are within the next step: who does not begin it holds them.
TEST_F(LivenessTest, WhoDoesNotBeginTheStepOfTheOthersIsNamed) {
  Begin(3);
  Train(20);
  Train(1, {1});
  ranks_[1].stage = v1::Span::KIND_OTHER;
  Pass(milliseconds(12000));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(Of(told_[0].ranks()), (std::vector<uint32_t>{1}));
  EXPECT_EQ(Of(told_[0].waiting()), (std::vector<uint32_t>{0, 2}));
}

// A loop that was left between the stages of a step: alone it is idle, beside others that wait it
// holds them.
TEST_F(LivenessTest, WhoStandsBetweenTheStagesOfAStepIsNamedWhereOthersWait) {
  Begin(3);
  Train(20);
  ranks_[0].stage = ranks_[2].stage = v1::Span::KIND_COLLECTIVE;
  ranks_[1].stage = v1::Span::KIND_OTHER;
  Pass(milliseconds(12000));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(Of(told_[0].ranks()), (std::vector<uint32_t>{1}));
  EXPECT_EQ(Of(told_[0].waiting()), (std::vector<uint32_t>{0, 2}));
}

// Two groups of ranks: 0 and 1 wait in the next step, 2 waits in this one for 3.
TEST_F(LivenessTest, OfThoseThatAreBehindWhoWaitsIsNotNamed) {
  Begin(4);
  Train(20);
  Train(1, {2, 3});
  for (const uint32_t r : {0, 1, 2}) ranks_[r].stage = v1::Span::KIND_COLLECTIVE;
  Pass(milliseconds(12000));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(Of(told_[0].ranks()), (std::vector<uint32_t>{3}));
  EXPECT_EQ(Of(told_[0].waiting()), (std::vector<uint32_t>{0, 1, 2}));
}

// The others have ended the step and want nothing: nobody is said to wait.
TEST_F(LivenessTest, WhoHasEndedItsStepDoesNotWait) {
  Begin(3);
  Train(20);
  EndStep({0, 2});
  Pass(milliseconds(12000));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(Of(told_[0].ranks()), (std::vector<uint32_t>{1}));
  EXPECT_TRUE(told_[0].waiting().empty());
  EXPECT_EQ(rules::HangVerdict(told_[0]).finding().level(), v1::LEVEL_WARNING);
}

// Stopped before anybody knows how long a step takes: five minutes, and a level less.
TEST_F(LivenessTest, AFastLoopThatStopsEarlyIsToldLate) {
  Begin(2);
  for (int i = 0; i < 100; ++i) Train(1, {}, milliseconds(i % 50 == 0 ? 250 : 0));
  Train(1, {1});
  Pass(milliseconds(290000));
  EXPECT_TRUE(told_.empty());
  Pass(milliseconds(20000));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(Of(told_[0].ranks()), (std::vector<uint32_t>{1}));
  const v1::Verdict verdict = rules::HangVerdict(told_[0]);
  EXPECT_EQ(verdict.finding().level(), v1::LEVEL_WARNING);
  EXPECT_NE(verdict.finding().explanation().find("too few steps were seen"), std::string::npos);
  EXPECT_EQ(verdict.finding().explanation().find("longest pause"), std::string::npos);
  Pass(milliseconds(3600000));
  EXPECT_EQ(told_.size(), 1u);
}

TEST_F(LivenessTest, GoneIsNotUnreachable) {
  Begin(2);
  Train(20);
  Leave(1);  // while its heartbeats came
  ranks_[1].beats = false;
  Pass(milliseconds(12000));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].cause(), v1::RanksHung::CAUSE_GONE);
  EXPECT_EQ(Of(told_[0].ranks()), (std::vector<uint32_t>{1}));
  EXPECT_EQ(rules::HangVerdict(told_[0]).finding().cause().id(), "process-gone");
  EXPECT_EQ(State("gone"), 1u);
}

TEST_F(LivenessTest, UnreachableWasSilentBefore) {
  Begin(2);
  Train(20);
  ranks_[1].beats = false;
  Pass(milliseconds(20000));
  EXPECT_TRUE(told_.empty()) << "nothing is known of a silent rank";
  EXPECT_EQ(State("silent"), 1u);
  Leave(1);  // keepalive gave up
  Pass(milliseconds(12000));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].cause(), v1::RanksHung::CAUSE_UNREACHABLE);
  EXPECT_EQ(State("unreachable"), 1u);
}

TEST_F(LivenessTest, NobodyWaitsNobodyIsTold) {
  Begin(2);
  Train(20);
  for (uint32_t r = 0; r < 2; ++r) {
    Leave(r);
    ranks_[r].beats = false;
  }
  Pass(milliseconds(100000));
  EXPECT_TRUE(told_.empty()) << "the job ended";
}

TEST_F(LivenessTest, OneThatGoesOnIsEnough) {
  Begin(2);
  Train(20);
  Train(100, {1});  // rank 0 does not wait: they are not coupled
  EXPECT_TRUE(told_.empty());
}

// An agent that does not say how long it stands, a run whose steps were never measured.
TEST_F(LivenessTest, WhereNothingIsKnownNothingIsSaid) {
  Begin(2);
  Train(3);
  Pass(milliseconds(100000));
  EXPECT_TRUE(told_.empty());
  EXPECT_EQ(State("running"), 0u);
}

TEST_F(LivenessTest, TooFewStepsDoNotTellHowLongOneTakes) {
  Begin(2);
  Train(5);  // four were ended, so that the first three are over, and four were timed
  Pass(milliseconds(60000));
  EXPECT_TRUE(told_.empty());
}

TEST_F(LivenessTest, WhoIsLeftOfAnEarlierAttemptIsNotWaitedFor) {
  Begin(2);
  Train(20);
  Join(0, 1);
  Join(1, 1);
  Pass(milliseconds(60000));  // the old processes beat, and stand
  EXPECT_TRUE(told_.empty());
}

TEST_F(LivenessTest, WhoSaidGoodbyeIsNotWaitedFor) {
  Begin(2);
  Train(20);
  v1::Batch goodbye;
  goodbye.add_progress()->set_newest_step(ranks_[0].step);
  goodbye.mutable_progress(0)->set_finished(true);
  live_.Heard(1, goodbye, now_);  // its connection lives on
  Train(1, {0});
  Pass(milliseconds(12000));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(Of(told_[0].ranks()), (std::vector<uint32_t>{1}));
}

TEST_F(LivenessTest, TheEndOfAnOlderConnectionIsNotTheProcess) {
  Begin(2);
  Train(20);
  Join(0, 0, 2);  // it is back before the old connection was seen to break
  live_.Left(1, 1, now_);
  EXPECT_EQ(State("running"), 2u);
}

class QuickLivenessTest : public LivenessTest {
 protected:
  QuickLivenessTest() : LivenessTest(std::chrono::seconds(1)) {}
};

// A heartbeat's word is over once a batch shows a newer step.
TEST_F(QuickLivenessTest, ANewerStepOutweighsTheLastHeartbeat) {
  Begin(2);
  Train(20);
  Pass(milliseconds(1250));
  for (Rank& rank : ranks_) rank.beats = false;
  Train(1, {}, milliseconds(2500));
  EXPECT_TRUE(told_.empty());
}

}  // namespace
}  // namespace plumbline::server
