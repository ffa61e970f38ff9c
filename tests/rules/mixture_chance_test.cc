// Tests the chance models of the mixture health rules by simulation and known values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "analysis/experts/chance.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {
namespace {

// Returns the loads of E experts after N independent choices.
std::vector<uint64_t> Loads(uint64_t choices, uint64_t experts, std::mt19937_64& rng) {
  std::vector<uint64_t> loads(experts, 0);
  uint64_t left = choices;
  for (uint64_t e = 0; e + 1 < experts && left > 0; ++e) {
    std::binomial_distribution<uint64_t> draw(left, 1.0 / static_cast<double>(experts - e));
    loads[e] = draw(rng);
    left -= loads[e];
  }
  loads[experts - 1] += left;
  return loads;
}

TEST(MixtureChance, BinomialTailsByHand) {
  // 4 of 10 at 1/2: 386/1024 at most 4; 848/1024 at least 4.
  EXPECT_NEAR(std::exp(LogBinomialAtMost(10, 0.5, 4)), 386.0 / 1024, 1e-14);
  EXPECT_NEAR(std::exp(LogBinomialAtLeast(10, 0.5, 4)), 848.0 / 1024, 1e-14);
  EXPECT_EQ(LogBinomialAtLeast(10, 0.5, 0), 0);
  EXPECT_EQ(LogBinomialAtMost(10, 0.5, 10), 0);
  EXPECT_EQ(LogBinomialAtLeast(10, 0.5, 11), -HUGE_VAL);
  EXPECT_NEAR(LogBinomialAtLeast(10, 0.5, 10), 10 * std::log(0.5), 1e-13);
  // None of n: n ln(1 - p), far below the exponent range of double.
  EXPECT_NEAR(LogBinomialAtMost(1000000, 0.01, 0), 1e6 * std::log1p(-0.01), 1e-6);
  // P(at most m) + P(at least m+1) = 1.
  for (const auto& [n, p, m] : {std::tuple<uint64_t, double, uint64_t>{200, 1.0 / 256, 2},
                                {100000, 1.0 / 64, 1500},
                                {1000000000, 1.0 / 8, 125010000}}) {
    EXPECT_NEAR(std::exp(LogBinomialAtMost(n, p, m)) + std::exp(LogBinomialAtLeast(n, p, m + 1)), 1,
                1e-9);
  }
  // The normal distribution at 5 standard deviations, 2.87e-7, within the skew of 1e9 trials.
  const double sd = std::sqrt(1e9 * 0.25);
  EXPECT_NEAR(LogBinomialAtLeast(1000000000, 0.5, static_cast<uint64_t>(5e8 + 5 * sd)),
              std::log(2.8665e-7), 2e-3);
}

struct Shape {
  uint64_t experts;
  double share;  // choices / experts
};

class LargestLoad : public ::testing::TestWithParam<Shape> {};

// Tests that the mean agrees within four standard errors and 1 %, and that the probability of the
// 99th percentile agrees with the simulation within binomial bounds and is never exceeded beyond
// them.
TEST_P(LargestLoad, AgreesWithSimulation) {
  const auto [experts, share] = GetParam();
  const auto choices = static_cast<uint64_t>(share * static_cast<double>(experts));
  if (choices == 0) return;
  std::mt19937_64 rng(experts * 1000 + static_cast<uint64_t>(share));
  const int trials = experts > 64 ? 4000 : 20000;
  uint64_t percentile = 1;
  while (LogChanceOfLargest(choices, experts, percentile) > std::log(0.01)) ++percentile;
  double sum = 0;
  double squares = 0;
  int above = 0;
  for (int i = 0; i < trials; ++i) {
    const std::vector<uint64_t> loads = Loads(choices, experts, rng);
    const uint64_t largest = *std::max_element(loads.begin(), loads.end());
    const double ratio = static_cast<double>(largest * experts) / static_cast<double>(choices);
    sum += ratio;
    squares += ratio * ratio;
    above += largest >= percentile ? 1 : 0;
  }
  const double mean = sum / trials;
  const double error = std::sqrt(std::max(0.0, squares / trials - mean * mean) / trials);
  EXPECT_NEAR(ExpectedLargestOverMean(choices, experts), mean, 4 * error + 0.01 * mean);
  const double chance = std::exp(LogChanceOfLargest(choices, experts, percentile));
  const double bound = chance + 4 * std::sqrt(chance * (1 - chance) / trials);
  EXPECT_LE(above, bound * trials + 1);
  // The union bound is tight: above the true value by at most 1 % plus noise.
  EXPECT_GE(above, (0.99 * chance - 4 * std::sqrt(chance / trials)) * trials - 1);
}

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (uint64_t experts : {2, 3, 8, 64, 256}) {
    for (double share : {0.5, 1.0, 4.0, 64.0, 4096.0}) shapes.push_back({experts, share});
  }
  return shapes;
}
INSTANTIATE_TEST_SUITE_P(Shapes, LargestLoad, ::testing::ValuesIn(Shapes()));

TEST(MixtureChance, LargestLoadAtTheEdges) {
  EXPECT_TRUE(std::isnan(ExpectedLargestOverMean(0, 8)));
  EXPECT_EQ(ExpectedLargestOverMean(1, 8), 8);
  EXPECT_EQ(ExpectedLargestOverMean(100, 1), 1);
  EXPECT_NEAR(ExpectedLargestOverMean(2, 2), 1.5, 0.02);
  // The figures of the rule pages.
  EXPECT_NEAR(ExpectedLargestOverMean(256, 64), 2.34, 0.01);
  EXPECT_NEAR(ExpectedLargestOverMean(25600, 64), 1.12, 0.005);
  EXPECT_GT(ExpectedLargestOverMean(4000000000, 512), 1);
}

TEST(MixtureChance, ATrendIsNotSeenInCorrelatedNoise) {
  std::mt19937_64 rng(7);
  std::normal_distribution<double> normal;
  for (double phi : {0.0, 0.5, 0.9}) {
    int rises = 0;
    constexpr int kTrials = 2000;
    for (int t = 0; t < kTrials; ++t) {
      std::vector<double> v(100);
      double x = normal(rng);
      for (double& y : v) {
        x = phi * x + std::sqrt(1 - phi * phi) * normal(rng);
        y = 3 + x;
      }
      rises += LinearTrend(v).Rises(3) ? 1 : 0;
    }
    RecordProperty("rises", rises);
    EXPECT_LE(rises, 0.02 * kTrials) << phi;
  }
}

TEST(MixtureChance, ATrendIsSeen) {
  std::mt19937_64 rng(8);
  std::normal_distribution<double> normal;
  int rises = 0;
  for (int t = 0; t < 200; ++t) {
    std::vector<double> v;
    for (int i = 0; i < 100; ++i)
      v.push_back(0.03 * i + normal(rng));  // 3 standard deviations in total
    rises += LinearTrend(v).Rises(3) ? 1 : 0;
  }
  EXPECT_GE(rises, 190);
  EXPECT_TRUE(LinearTrend(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}).Rises(3));
  EXPECT_FALSE(LinearTrend(std::vector<double>(100, 2.0)).Rises(3));
  EXPECT_FALSE(LinearTrend(std::vector<double>{1, 2}).Rises(3));
}

TEST(MixtureChance, ABlockIntervalCoversTheMean) {
  std::mt19937_64 rng(9);
  std::normal_distribution<double> normal;
  int outside = 0;
  constexpr int kTrials = 4000;
  for (int t = 0; t < kTrials; ++t) {
    std::vector<double> v(100);
    for (double& y : v) y = 5 + normal(rng);
    const MeanInterval i = BlockMeanInterval(v);
    outside += std::fabs(i.mean - 5) > i.half_width ? 1 : 0;
  }
  EXPECT_LE(outside, kTrials * 0.01 + 4 * std::sqrt(kTrials * 0.01));
  EXPECT_GE(outside, kTrials * 0.01 - 4 * std::sqrt(kTrials * 0.01));
  EXPECT_TRUE(std::isnan(BlockMeanInterval(std::vector<double>(9, 1.0)).mean));
}

}  // namespace
}  // namespace plumbline::rules
