// Tests whether the residual of a compressed reduction is delayed or lost.
#include "analysis/collective/compression_drift.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "analysis/collective/compression_verdict.h"

namespace plumbline::analysis {
namespace {

// Two ranks with a common value `persistent` and separate noise. The reduction returns the fraction
// `share` of the sum, with or without error feedback.
class Steps {
 public:
  explicit Steps(int elements) : kept_(static_cast<size_t>(elements), 0) {
    std::normal_distribution<double> normal;
    for (int i = 0; i < elements; ++i) persistent_.push_back(normal(random_));
  }
  ReductionCase Next(double share, bool feedback) {
    std::normal_distribution<double> normal;
    ReductionCase c;
    c.ranks = 2;
    c.samples = static_cast<int>(persistent_.size());
    for (int r = 0; r < 2; ++r) {
      for (const double p : persistent_) c.inputs.push_back(p + normal(random_));
    }
    for (int i = 0; i < c.samples; ++i) {
      const auto at = static_cast<size_t>(i);
      const double whole = c.input(0, i) + c.input(1, i) + (feedback ? kept_[at] : 0);
      c.output.push_back(share * whole);
      kept_[at] = whole - c.output.back();
      c.offsets.push_back(static_cast<uint64_t>(i));
    }
    return c;
  }

 private:
  std::mt19937_64 random_{3};
  std::vector<double> persistent_, kept_;
};

CompressionDrift After(int steps, double share, bool feedback) {
  Steps run(300);
  CompressionDrift drift;
  for (int step = 0; step < steps; ++step) drift.Take(run.Next(share, feedback), step);
  return drift;
}

TEST(CompressionDrift, FeedbackBringsWhatWasLeftOut) {
  const CompressionDrift drift = After(64, 0.5, true);
  ASSERT_TRUE(drift.measured().has_value()) << drift.why();
  EXPECT_NEAR(drift.measured()->mean, 0, 0.03);
  EXPECT_EQ(CompressionLevel(drift), v1::LEVEL_UNSPECIFIED);
  EXPECT_EQ(CompressionVerdict(drift, "powersgd").kind(), v1::Verdict::KIND_PASS);
}

TEST(CompressionDrift, LevelsFollowWhatIsLost) {
  for (const auto& [share, level] : {std::pair{0.97, v1::LEVEL_UNSPECIFIED},
                                     {0.8, v1::LEVEL_WARNING},
                                     {1.3, v1::LEVEL_WARNING},
                                     {0.3, v1::LEVEL_ERROR}}) {
    const CompressionDrift drift = After(64, share, false);
    ASSERT_TRUE(drift.measured().has_value()) << drift.why();
    EXPECT_NEAR(drift.measured()->mean, share - 1, 0.01);
    EXPECT_EQ(CompressionLevel(drift), level) << share;
  }
}

// Tests that a twentieth per step needs twenty steps: sixteen are inconclusive.
TEST(CompressionDrift, LateIsNotLost) {
  EXPECT_FALSE(After(64, 0.05, true).measured().has_value());
  EXPECT_EQ(After(64, 0.05, true).why().find("few-steps: "), 0u);
  const CompressionDrift later = After(600, 0.05, true);
  ASSERT_TRUE(later.measured().has_value());
  EXPECT_EQ(CompressionLevel(later), v1::LEVEL_UNSPECIFIED);
}

TEST(CompressionDrift, NoiseAloneHasNothingToLose) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  CompressionDrift drift;
  for (int step = 0; step < 64; ++step) {
    ReductionCase c;
    c.ranks = 1;
    c.samples = 200;
    for (int i = 0; i < 200; ++i) {
      c.inputs.push_back(normal(random));
      c.output.push_back(c.inputs.back() / 2);
      c.offsets.push_back(static_cast<uint64_t>(i));
    }
    drift.Take(c, step);
  }
  EXPECT_FALSE(drift.measured().has_value());
  EXPECT_EQ(drift.why().find("no-persistent-part: "), 0u) << drift.why();
}

TEST(CompressionDrift, OtherElementsAreCountedAndNotMixed) {
  Steps run(100);
  CompressionDrift drift;
  for (int step = 0; step < 40; ++step) {
    ReductionCase c = run.Next(0.5, false);
    for (uint64_t& offset : c.offsets) offset += static_cast<uint64_t>(step) * 1000;
    drift.Take(c, step);
  }
  EXPECT_EQ(drift.steps(), 1u);
  EXPECT_EQ(drift.why().find("elements-change: "), 0u);
}

TEST(CompressionDrift, RestartsAndPoisonCountForNothing) {
  Steps run(100);
  CompressionDrift drift;
  drift.Take(run.Next(0.5, false), 4);
  drift.Take(run.Next(0.5, false), 4);
  drift.Take(run.Next(0.5, false), 3);
  ReductionCase poisoned = run.Next(0.5, false);
  poisoned.output[7] = NAN;
  drift.Take(poisoned, 5);
  poisoned.output[7] = 0;
  poisoned.inputs[9] = -INFINITY;
  drift.Take(poisoned, 6);
  EXPECT_EQ(drift.steps(), 1u);
}

TEST(CompressionDrift, StateIsBounded) {
  Steps run(4000);
  CompressionDrift drift;
  for (int step = 0; step < 40; ++step) drift.Take(run.Next(0.5, false), step);
  EXPECT_EQ(drift.elements(), CompressionDrift::kMostElements);
}

}  // namespace
}  // namespace plumbline::analysis
