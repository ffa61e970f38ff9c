// Tests lines and means of clustered tokens: the estimates, and the standard errors if the tokens
// of a sequence have common noise.
#include "analysis/drift/values/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace plumbline::analysis {
namespace {

// Sequences of 20 tokens, each with its own shift in y and in x.
template <typename Add>
void Clusters(std::mt19937_64& engine, int sequences, double shared, const Add& add) {
  std::normal_distribution<double> normal;
  for (int s = 0; s < sequences; ++s) {
    const double shift = shared * normal(engine), place = normal(engine);
    for (int i = 0; i < 20; ++i) add(place + normal(engine), shift + normal(engine), i == 19);
  }
}

// Checks that the fraction of estimates with |z| > 1.96 is within 5 binomial standard deviations of
// 5 %, plus the inflation from few clusters.
void ExpectLevel(int beyond, int runs) {
  const double n = runs, deviation = std::sqrt(0.05 * 0.95 * n);
  EXPECT_GT(beyond, 0.05 * n - 5 * deviation);
  EXPECT_LT(beyond, 0.065 * n + 5 * deviation);
}

TEST(ClusteredMean, LevelHoldsWhereTokensShareTheirNoise) {
  std::mt19937_64 engine(11);
  int beyond = 0;
  constexpr int kRuns = 2000;
  for (int run = 0; run < kRuns; ++run) {
    ClusteredMean mean;
    Clusters(engine, 60, 1.0, [&](double, double y, bool last) {
      mean.Add(y);
      if (last) mean.EndSequence();
    });
    beyond += std::fabs(mean.z()) > 1.96;
  }
  ExpectLevel(beyond, kRuns);
}

TEST(ClusteredSlope, LevelHoldsWhereTokensShareTheirNoise) {
  std::mt19937_64 engine(12);
  int beyond = 0;
  constexpr int kRuns = 2000;
  for (int run = 0; run < kRuns; ++run) {
    ClusteredSlope slope;
    Clusters(engine, 80, 1.0, [&](double x, double y, bool last) {
      slope.Add(x, y);
      if (last) slope.EndSequence();
    });
    beyond += std::fabs(slope.Fit().z()) > 1.96;
  }
  ExpectLevel(beyond, kRuns);
}

// Tokens of many sequences with `contexts` contexts, each with its own shift and slope: the
// estimate by sequence alone, and with separate contexts.
struct ManyTimes {
  ClusteredSlope with, without;
  ClusteredMean mean;
};
ManyTimes ThroughContexts(std::mt19937_64& engine, int contexts) {
  std::normal_distribution<double> normal;
  std::vector<double> shift, slope;
  for (int c = 0; c < contexts; ++c) {
    shift.push_back(normal(engine));
    slope.push_back(normal(engine));
  }
  ManyTimes out;
  for (int i = 0; i < 100 * 20; ++i) {
    const size_t c = engine() % shift.size();
    const double x = normal(engine), y = shift[c] + slope[c] * x + 0.1 * normal(engine);
    const ContextKey key = ContextKeyOf(c + 1);
    out.with.Add(x, y, key);
    out.without.Add(x, y);
    out.mean.Add(y, key);
    if (i % 20 != 19) continue;
    out.with.EndSequence();
    out.without.EndSequence();
    out.mean.EndSequence();
  }
  return out;
}

// Tests noise of contexts without slope and mean: with separate contexts, five standard deviations
// almost never occur, even if the same few contexts repeat often. By sequence alone, they occur
// most of the time.
TEST(ClusteredSlope, AContextThatComesAgainIsNoNewEvidence) {
  std::mt19937_64 engine(16);
  constexpr int kRuns = 500;
  for (const int contexts : {12, 24, 64, 400}) {
    int slopes = 0, means = 0, two = 0, alone = 0;
    for (int run = 0; run < kRuns; ++run) {
      const ManyTimes fit = ThroughContexts(engine, contexts);
      slopes += std::fabs(fit.with.Fit().z()) > 5;
      means += std::fabs(fit.mean.z()) > 5;
      two += std::fabs(fit.with.Fit().z()) > 2.6;
      alone += std::fabs(fit.without.Fit().z()) > 5;
    }
    std::printf(
        "%3d contexts: beyond 5 deviations %d slopes, %d means (over sequences %d); beyond "
        "2.6 %d of %d\n",
        contexts, slopes, means, alone, two, kRuns);
    EXPECT_EQ(slopes + means, 0) << contexts;
    EXPECT_LE(two, 0.02 * kRuns) << contexts;
    if (contexts < 64) {
      EXPECT_GT(alone, kRuns / 10) << contexts;
    }
  }
}

TEST(ClusteredSlope, OneContextStaysSilent) {
  std::mt19937_64 engine(17);
  const ManyTimes fit = ThroughContexts(engine, 1);
  EXPECT_TRUE(std::isnan(fit.with.Fit().standard_error));
  EXPECT_FALSE(std::fabs(fit.with.Fit().z()) > 5);
  EXPECT_TRUE(std::isnan(fit.mean.standard_error()));
  EXPECT_GT(std::fabs(fit.without.Fit().z()), 5);
}

// Tests that a slope common to all contexts is still found.
TEST(ClusteredSlope, AnHonestSlopeIsFoundThroughContexts) {
  std::mt19937_64 engine(18);
  std::normal_distribution<double> normal;
  ClusteredSlope fit;
  for (int i = 0; i < 100 * 20; ++i) {
    const double x = normal(engine);
    fit.Add(x, 0.1 * x + 0.1 * normal(engine), ContextKeyOf(engine() % 64 + 1));
    if (i % 20 == 19) fit.EndSequence();
  }
  EXPECT_GT(fit.Fit().z(), 25);
}

TEST(StudentFactor, IsStudentsTail) {
  // One-sided quantiles of Student's t at 2.867e-7: R's qt(pnorm(-5), df, lower = FALSE) / 5.
  EXPECT_NEAR(StudentFactor(1e9), 1, 1e-6);
  EXPECT_NEAR(StudentFactor(64), 1.11, 0.01);
  EXPECT_NEAR(StudentFactor(32), 1.25, 0.02);
  EXPECT_NEAR(StudentFactor(8), 3.5, 0.2);
}

TEST(ClusteredSlope, FindsTheLine) {
  std::mt19937_64 engine(13);
  ClusteredSlope slope, other;
  int sequence = 0;
  Clusters(engine, 400, 0, [&](double x, double y, bool last) {
    ClusteredSlope& half = sequence % 2 == 0 ? slope : other;
    half.Add(x, 3 - 0.25 * x + 0.1 * y);
    if (last) half.EndSequence();
    sequence += last;
  });
  slope.Merge(other);
  const SlopeFit fit = slope.Fit();
  EXPECT_EQ(fit.sequences, 400u);
  EXPECT_NEAR(fit.slope, -0.25, 5 * fit.standard_error);
  EXPECT_NEAR(fit.intercept, 3, 0.02);
  EXPECT_NEAR(fit.r2, 0.125 / 0.135, 0.01);
}

TEST(ClusteredSlope, NoSpreadIsNoSlope) {
  ClusteredSlope flat;
  for (int i = 0; i < 100; ++i) {
    flat.Add(0.1, 20);
    flat.EndSequence();
  }
  EXPECT_TRUE(std::isnan(flat.Fit().slope));
  EXPECT_EQ(flat.Fit().r2, 0);
  ClusteredMean few;
  for (int i = 0; i < 7; ++i) {
    few.Add(i);
    few.EndSequence();
  }
  EXPECT_TRUE(std::isnan(few.standard_error()));
  EXPECT_FALSE(few.z() > 5);
}

LagRegression Lags(std::mt19937_64& engine, double a, double b, double c, int sequences) {
  std::exponential_distribution<double> law;
  LagRegression fit;
  for (int s = 0; s < sequences; ++s) {
    const double lag = s % 5;
    for (int i = 0; i < 20; ++i) fit.Add(lag, (a + b * lag + c * lag * lag) * law(engine));
    fit.EndSequence();
  }
  return fit;
}

TEST(LagRegression, FindsEachShape) {
  std::mt19937_64 engine(14);
  const LagFit linear = Lags(engine, 3e-4, 2e-4, 0, 5000).Fit(2);
  EXPECT_NEAR(linear.stale_part, 4e-4, 4e-5);
  const LagFit square = Lags(engine, 3e-4, 0, 1e-4, 5000).Fit(2);
  EXPECT_NEAR(square.stale_part, 4e-4, 6e-5);
  EXPECT_GE(square.linear, 0);
  EXPECT_GE(square.quadratic, 0);
}

TEST(LagRegression, LevelAtTheBorder) {
  // Staleness exactly equal to numerics at the median lag: a one-sided 99 % test rejects in 0.5 %.
  std::mt19937_64 engine(15);
  int fired = 0;
  constexpr int kRuns = 3000;
  for (int run = 0; run < kRuns; ++run) {
    const LagFit fit = Lags(engine, 3e-4, 1.5e-4, 0, 60).Fit(2);
    fired += fit.excess > 2.576 * fit.excess_error;
  }
  EXPECT_LT(fired, 0.02 * kRuns);
  EXPECT_GT(fired, 0);
  int found = 0;
  for (int run = 0; run < 200; ++run) {
    const LagFit fit = Lags(engine, 3e-4, 4e-4, 0, 60).Fit(2);
    found += fit.excess > 2.576 * fit.excess_error;
  }
  EXPECT_GT(found, 195);
}

TEST(LagRegression, AbstainsWithoutBothKinds) {
  LagRegression stale;
  for (int i = 0; i < 100; ++i) {
    stale.Add(3, 1);
    stale.EndSequence();
  }
  EXPECT_FALSE(stale.Fit(3).fitted);
  LagRegression fresh;
  fresh.Add(0, 1);
  fresh.EndSequence();
  EXPECT_FALSE(fresh.Fit(1).fitted);
}

}  // namespace
}  // namespace plumbline::analysis
