// Slow ranks: declared stages, first steps, between two steps; and ranks that wait for them.
#include <gtest/gtest.h>

#include "analysis/processes/hang_verdict.h"
#include "base/archive.h"
#include "tests/server/stream/liveness_run.h"

namespace plumbline::server {
namespace {

// The ranks are late, not hung: one rank writes a checkpoint, the others wait for it.
TEST_F(LivenessTest, WithinADeclaredStageNoRankHangs) {
  Begin(4);
  for (const auto stage :
       {v1::Span::KIND_CHECKPOINT, v1::Span::KIND_EVALUATION, v1::Span::KIND_COMPILE}) {
    Train(20);
    ranks_[0].stage = stage;
    Train(1, {0});
    Pass(milliseconds(2500));
    EXPECT_EQ(State("late"), 1u);
    Pass(milliseconds(600000));
    EXPECT_TRUE(reported_.empty()) << v1::Span::Kind_Name(stage);
    ranks_[0].stage = v1::Span::KIND_UNSPECIFIED;
    ranks_[0].moved = now_;  // the step ends with its stage
  }
  // A stage of another kind is no exemption.
  Train(20);
  ranks_[0].stage = v1::Span::KIND_DATA;
  Train(1, {0});
  Pass(milliseconds(12000));
  EXPECT_EQ(reported_.size(), 1u);
}

TEST_F(LivenessTest, AFirstStepMayTakeItsTime) {
  Begin(2);
  Train(1);
  Pass(milliseconds(600000));  // it compiles
  EXPECT_TRUE(reported_.empty());
  // The first step of a process that has reconnected may also take long, while the others wait.
  Train(20);
  Leave(1);
  ranks_[1].ended = 0;
  Join(1);
  Train(1, {1});
  Pass(milliseconds(600000));
  EXPECT_TRUE(reported_.empty());
}

// Paces are in the server's checkpoint, of runs that are over and of others.
TEST_F(LivenessTest, PacesOutliveARestartOfTheServer) {
  Begin(2);
  Train(20);
  live_.Forget("r");
  Begin(2, "open");
  Train(20);
  Archive out;
  Liveness::Paces paces = live_.AllPaces();
  out(paces);
  const std::string bytes = out.Take();
  Archive in(bytes);
  Liveness::Paces read;
  in(read);
  in.End();
  ASSERT_TRUE(in.ok()) << in.error();
  Liveness later(std::chrono::seconds(10));
  later.Restore(std::move(read));
  EXPECT_DOUBLE_EQ(later.PaceOf("r", 0).step_seconds, 0.5);
  EXPECT_DOUBLE_EQ(later.PaceOf("open", 0).step_seconds, 0.5);
  EXPECT_EQ(later.PaceOf("r", 1).step_seconds, 0);
}

// The time that a crash cost is computed after the run, too.
TEST_F(LivenessTest, ThePaceOfARunThatIsOverStaysKnown) {
  Begin(2);
  Train(20);
  EXPECT_DOUBLE_EQ(live_.PaceOf("r", 0).step_seconds, 0.5);
  live_.Forget("r");
  EXPECT_DOUBLE_EQ(live_.PaceOf("r", 0).step_seconds, 0.5);
  EXPECT_EQ(live_.PaceOf("r", 1).step_seconds, 0) << "another attempt";
  EXPECT_EQ(live_.PaceOf("q", 0).step_seconds, 0) << "another run";
  // The oldest ones are forgotten.
  for (int i = 0; i < 4096; ++i) {
    Begin(1, "run" + std::to_string(i));
    Train(1);
    live_.Forget(run_);
  }
  EXPECT_EQ(live_.PaceOf("r", 0).step_seconds, 0);
}

// A notebook between two cells, a loop that has ended, a user's pause.
class BetweenStepsTest : public LivenessTest, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(BetweenStepsTest, NoRankHangs) {
  Begin(GetParam());
  Train(20);
  for (Rank& rank : ranks_) rank.stage = v1::Span::KIND_OTHER;
  Pass(milliseconds(12000));
  EXPECT_EQ(State("idle"), GetParam());
  Pass(milliseconds(3600000));
  EXPECT_TRUE(reported_.empty());
  // In the next cell it may hang, after any idle time.
  for (Rank& rank : ranks_) rank.stage = v1::Span::KIND_UNSPECIFIED;
  Train(1);
  Pass(milliseconds(12000));
  EXPECT_EQ(reported_.size(), 1u);
}
INSTANTIATE_TEST_SUITE_P(Ranks, BetweenStepsTest, ::testing::Values(1u, 4u));

// The others are within the next step: the rank that does not begin it blocks them.
TEST_F(LivenessTest, WhoDoesNotBeginTheStepOfTheOthersIsNamed) {
  Begin(3);
  Train(20);
  Train(1, {1});
  ranks_[1].stage = v1::Span::KIND_OTHER;
  Pass(milliseconds(12000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(Of(reported_[0].ranks()), (std::vector<uint32_t>{1}));
  EXPECT_EQ(Of(reported_[0].waiting()), (std::vector<uint32_t>{0, 2}));
}

// A loop was left between the stages of a step. If no rank waits for it, it is idle; otherwise it
// blocks the others.
TEST_F(LivenessTest, WhoStandsBetweenTheStagesOfAStepIsNamedWhereOthersWait) {
  Begin(3);
  Train(20);
  ranks_[0].stage = ranks_[2].stage = v1::Span::KIND_COLLECTIVE;
  ranks_[1].stage = v1::Span::KIND_OTHER;
  Pass(milliseconds(12000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(Of(reported_[0].ranks()), (std::vector<uint32_t>{1}));
  EXPECT_EQ(Of(reported_[0].waiting()), (std::vector<uint32_t>{0, 2}));
}

// The others have ended the step and are idle, so no rank is reported to wait.
TEST_F(LivenessTest, WhoHasEndedItsStepDoesNotWait) {
  Begin(3);
  Train(20);
  EndStep({0, 2});
  Pass(milliseconds(12000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(Of(reported_[0].ranks()), (std::vector<uint32_t>{1}));
  EXPECT_TRUE(reported_[0].waiting().empty());
  EXPECT_EQ(analysis::HangVerdict(reported_[0]).finding().level(), v1::LEVEL_WARNING);
}

TEST_F(LivenessTest, OneThatGoesOnIsEnough) {
  Begin(2);
  Train(20);
  Train(100, {1});  // rank 0 does not wait: they are not coupled
  EXPECT_TRUE(reported_.empty());
}

}  // namespace
}  // namespace plumbline::server
