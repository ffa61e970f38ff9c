// Lines and means through clustered tokens: what they estimate, and that their standard errors are
// honest where tokens of a sequence share their noise.
#include "analysis/drift/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace plumbline::rules {
namespace {

// Sequences of 20 tokens; each has a shift of its own in y and in x.
template <typename Add>
void Clusters(std::mt19937_64& engine, int sequences, double shared, const Add& add) {
  std::normal_distribution<double> normal;
  for (int s = 0; s < sequences; ++s) {
    const double shift = shared * normal(engine), place = normal(engine);
    for (int i = 0; i < 20; ++i) add(place + normal(engine), shift + normal(engine), i == 19);
  }
}

// Of `runs` estimates, the share whose z is beyond 1.96 lies within 5 binomial deviations of 5 %,
// and the inflation that few clusters have.
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
  // Staleness exactly equal to numerics at the median lag: a one-sided 99 % test fires in 0.5 %.
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
}  // namespace plumbline::rules
