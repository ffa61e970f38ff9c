// A run whose processes are alive and begin no step.
#include <gtest/gtest.h>

#include "analysis/processes/processes.h"
#include "tests/server/stream/liveness_run.h"

namespace plumbline::server {
namespace {

using std::chrono::milliseconds;

class BetweenStepsTest : public LivenessTest {
 protected:
  static constexpr v1::Span::Kind kIdle = v1::Span::KIND_OTHER;
  // Trains `steps` steps; then every rank ends its step, and the loader blocks.
  void TrainAndBlock(uint32_t ranks, int steps, milliseconds each = milliseconds(500)) {
    Begin(ranks);
    Train(steps, {}, each);
    for (uint32_t r = 0; r < ranks; ++r) EndStep({r});
  }
  void SetStage(v1::Span::Kind stage) {
    for (Rank& rank : ranks_) rank.stage = stage;
  }
  v1::Level Level(size_t i) const {
    return analysis::StepsStoppedVerdict(stopped_.at(i)).finding().level();
  }
};

TEST_F(BetweenStepsTest, ALoaderThatBlocksIsAWarningFirstAndAnErrorFiveMinutesLater) {
  TrainAndBlock(1, 20);
  Pass(milliseconds(59000));
  EXPECT_TRUE(stopped_.empty());
  Pass(milliseconds(1000));
  ASSERT_EQ(stopped_.size(), 1u);
  EXPECT_EQ(stopped_[0].run(), "r");
  EXPECT_EQ(stopped_[0].step(), 19);
  EXPECT_EQ(Of(stopped_[0].ranks()), (std::vector<uint32_t>{0}));
  EXPECT_EQ(Level(0), v1::LEVEL_WARNING);
  Pass(milliseconds(299000));
  EXPECT_EQ(stopped_.size(), 1u);
  Pass(milliseconds(1500));
  ASSERT_EQ(stopped_.size(), 2u);
  EXPECT_EQ(Level(1), v1::LEVEL_ERROR);
  Pass(milliseconds(1'680'000));
  EXPECT_EQ(stopped_.size(), 2u) << "once each";
  EXPECT_TRUE(reported_.empty()) << "performance/hang is of ranks within a step";
}

TEST_F(BetweenStepsTest, AfterTheNextStepItIsReportedAgain) {
  TrainAndBlock(4, 20);
  Pass(milliseconds(70000));
  ASSERT_EQ(stopped_.size(), 1u);
  EXPECT_EQ(Of(stopped_[0].ranks()), (std::vector<uint32_t>{0, 1, 2, 3}));
  SetStage(v1::Span::KIND_UNSPECIFIED);
  Train(20);
  for (uint32_t r = 0; r < 4; ++r) EndStep({r});
  Pass(milliseconds(70000));
  ASSERT_EQ(stopped_.size(), 2u);
  EXPECT_EQ(stopped_[1].step(), 39);
}

TEST_F(BetweenStepsTest, StepsOfTenSecondsMayBeThreeMinutesApart) {
  TrainAndBlock(2, 20, milliseconds(10000));
  Pass(milliseconds(185000));
  EXPECT_TRUE(stopped_.empty());
  Pass(milliseconds(20000));
  ASSERT_EQ(stopped_.size(), 1u);
  EXPECT_EQ(stopped_[0].threshold_ns(), 200'000'000'000u);
  EXPECT_EQ(stopped_[0].error_ns(), 500'000'000'000u);
}

// A stage may last any time. The time after the stage counts from its end.
TEST_F(BetweenStepsTest, DeclaredStagesAreExempt) {
  for (const v1::Span::Kind stage : {v1::Span::KIND_EVALUATION, v1::Span::KIND_CHECKPOINT,
                                     v1::Span::KIND_COMPILE, v1::Span::KIND_PAUSE}) {
    live_.Forget("r");
    stopped_.clear();
    ranks_.clear();
    TrainAndBlock(2, 20);
    ranks_[1].stage = stage;  // one rank is enough, because the other waits for it
    Pass(milliseconds(7'200'000));
    EXPECT_TRUE(stopped_.empty()) << stage;
    ranks_[1].stage = kIdle;
    Pass(milliseconds(55000));
    EXPECT_TRUE(stopped_.empty()) << stage;
    Pass(milliseconds(10000));
    EXPECT_EQ(stopped_.size(), 1u) << stage;
  }
}

// These cases are reported by another rule or not reported: within a step, within a stage, ended,
// silent, no step yet.
TEST_F(BetweenStepsTest, OthersAreNotReported) {
  Begin(2);
  Pass(milliseconds(600000));
  EXPECT_TRUE(stopped_.empty()) << "no step has begun";
  Train(20);
  Pass(milliseconds(600000));
  EXPECT_TRUE(stopped_.empty()) << "all are in step 19";
  EndStep({0});
  Pass(milliseconds(600000));
  EXPECT_TRUE(stopped_.empty()) << "rank 1 is in step 19";
  EndStep({1});
  ranks_[1].stage = v1::Span::KIND_DATA;
  Pass(milliseconds(600000));
  EXPECT_TRUE(stopped_.empty()) << "a stage of data is open";
  ranks_[1].beats = false;
  Pass(milliseconds(600000));
  EXPECT_TRUE(stopped_.empty()) << "rank 1 is silent";
  Leave(1);
  Pass(milliseconds(600000));
  EXPECT_TRUE(stopped_.empty()) << "rank 1 is gone";
}

// If steps are too fast or too few for a median, the mean is used, and at most five minutes.
TEST_F(BetweenStepsTest, WithoutAPaceTheLimitIsBetweenOneAndFiveMinutes) {
  struct Case {
    int steps;
    milliseconds each;
    uint64_t seconds;
  };
  for (const Case c : {Case{1, milliseconds(500), 300}, Case{2, milliseconds(250), 300},
                       Case{3, milliseconds(250), 60}, Case{4, milliseconds(1000), 60},
                       Case{4, milliseconds(4000), 80}, Case{4, milliseconds(40000), 300}}) {
    live_.Forget("r");
    stopped_.clear();
    ranks_.clear();
    Begin(1);
    Pass(milliseconds(500));
    Train(c.steps, {}, c.each);
    ranks_[0].ended = c.steps;  // as the later heartbeats state
    EndStep({0});
    Pass(milliseconds(1'000'000));
    ASSERT_EQ(stopped_.size(), 2u) << c.steps;
    EXPECT_EQ(stopped_[0].step_ns(), 0u);
    EXPECT_NEAR(static_cast<double>(stopped_[0].threshold_ns()) * 1e-9,
                static_cast<double>(c.seconds), 25)
        << c.steps;
    EXPECT_EQ(Level(1), v1::LEVEL_ERROR);
  }
}

// After a restart of the server, the heartbeats have all necessary data.
TEST_F(BetweenStepsTest, AServerThatIsNewReportsByTheRanksOwnClock) {
  TrainAndBlock(1, 20);
  Pass(milliseconds(50000));
  live_.Forget("r");
  Join(0);
  Pass(milliseconds(200000));
  EXPECT_TRUE(stopped_.empty()) << "it knows no pace: five minutes";
  Pass(milliseconds(60000));
  ASSERT_EQ(stopped_.size(), 1u);
  EXPECT_EQ(stopped_[0].step(), 19);
  EXPECT_EQ(Level(0), v1::LEVEL_WARNING);
}

TEST_F(BetweenStepsTest, RolloutWorkersWaitForTheirTrainer) {
  role_ = v1::ROLE_ROLLOUT;
  TrainAndBlock(2, 20);
  Pass(milliseconds(600000));
  EXPECT_TRUE(stopped_.empty());
}

}  // namespace
}  // namespace plumbline::server
