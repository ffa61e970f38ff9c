// Tests drift moments against a direct computation in extended precision: merged, with non-finite
// values, and with every token far off.
#include "analysis/drift/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "analysis/drift/strata.h"

namespace plumbline::analysis {
namespace {

constexpr double kTolerance = 1e-6;  // relative

double Near(double actual, double expected) {
  return std::fabs(actual - expected) / std::fabs(expected);
}

DriftMoments Of(const std::vector<double>& d) {
  DriftMoments m;
  for (const double x : d) m.Add(x);
  return m;
}

std::vector<double> Normal(double mean, double sd, int n, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> law(mean, sd);
  std::vector<double> d(static_cast<size_t>(n));
  for (double& x : d) x = law(engine);
  return d;
}

void ExpectBruteForce(const std::vector<double>& d) {
  const DriftMoments m = Of(d);
  const long double n = static_cast<long double>(d.size());
  long double k1 = 0, k2 = 0, k3 = 0, ratio = 0, squares = 0;
  for (const long double x : d) {
    k1 -= x;
    k2 += x * x / 2;
    k3 += std::expm1(x) - x;
    ratio += std::exp(x);
    squares += std::exp(2 * x);
  }
  EXPECT_LT(Near(m.k1(), static_cast<double>(k1 / n)), kTolerance);
  EXPECT_LT(Near(m.k2(), static_cast<double>(k2 / n)), kTolerance);
  EXPECT_LT(Near(m.k3(), static_cast<double>(k3 / n)), kTolerance);
  if (std::fabs(static_cast<double>(ratio / n) - 1) < 0.01) {
    EXPECT_LT(Near(m.ess_share(), static_cast<double>(ratio * ratio / squares / n)), kTolerance);
  }
}

TEST(DriftMoments, AgreeWithBruteForce) {
  for (const double sd : {1e-7, 1e-4, 0.01, 0.1, 0.24, 0.3})
    ExpectBruteForce(Normal(0, sd, 5000, 7));
  ExpectBruteForce(Normal(-3, 2, 5000, 8));
  ExpectBruteForce(Normal(12, 1, 5000, 9));
}

TEST(DriftMoments, K3IsExactToFullPrecisionNearNothing) {
  for (double d = 1e-9; d < 20; d *= 1.7) {
    for (const double x : {d, -d}) {
      long double sum = 0, term = static_cast<long double>(x) * x / 2;
      for (int k = 3; k < 200; ++k) {
        sum += term;
        term *= static_cast<long double>(x) / k;
      }
      EXPECT_LT(Near(K3(x), static_cast<double>(sum)), 1e-12) << x;
    }
  }
}

TEST(DriftMoments, MergeEqualsOneStream) {
  const std::vector<double> d = Normal(0.01, 0.4, 3000, 3);
  DriftMoments whole = Of(d), parts;
  for (size_t first = 0; first < d.size(); first += 700) {
    const size_t last = std::min(d.size(), first + 700);
    parts.Merge(
        Of({d.begin() + static_cast<int64_t>(first), d.begin() + static_cast<int64_t>(last)}));
  }
  EXPECT_EQ(parts.count(), whole.count());
  EXPECT_LT(Near(parts.k3(), whole.k3()), 1e-12);
  EXPECT_LT(Near(parts.variance(), whole.variance()), 1e-12);
  EXPECT_LT(Near(parts.ess_share(), whole.ess_share()), 1e-12);
  EXPECT_EQ(parts.above(), whole.above());
  EXPECT_EQ(parts.below(), whole.below());
}

TEST(DriftMoments, AllFarOffReadsAsWorst) {
  for (const double far : {20.0, 900.0}) {
    for (const int signs : {-1, 0, 1}) {  // all below, alternating, all above
      DriftMoments m;
      for (int i = 0; i < 1000; ++i) m.Add(signs != 0 ? signs * far : (i % 2 == 0 ? far : -far));
      EXPECT_NEAR(m.k2(), far * far / 2, 1e-9 * far * far);
      EXPECT_GE(m.log_k3(), std::log(19.0));
      EXPECT_EQ(m.tail_share(3), 1);
      EXPECT_EQ(m.bounded_square(), 0.25);
      EXPECT_FALSE(std::isnan(m.ess_share()));
      EXPECT_LE(m.ess_share(), 0.0011) << far << " " << signs;
    }
  }
  DriftMoments below;
  for (int i = 0; i < 1000; ++i) below.Add(-20);
  EXPECT_NEAR(below.ess_share(), 1e-3, 1e-6);
}

TEST(DriftMoments, WhatIsNotFiniteIsCountedApart) {
  const std::vector<double> d = Normal(0, 0.1, 1000, 5);
  DriftMoments clean = Of(d), poisoned;
  for (size_t i = 0; i < d.size(); ++i) {
    if (i % 10 == 0) poisoned.Add(i % 20 == 0 ? NAN : INFINITY);
    if (i % 10 == 5) poisoned.Add(-INFINITY);
    poisoned.Add(d[i]);
  }
  EXPECT_EQ(poisoned.non_finite(), 200u);
  EXPECT_EQ(poisoned.k3(), clean.k3());
  EXPECT_EQ(poisoned.ess_share(), clean.ess_share());
}

TEST(DriftMoments, EmptyIsNotANumber) {
  const DriftMoments m;
  EXPECT_TRUE(std::isnan(m.k1()));
  EXPECT_TRUE(std::isnan(m.k3()));
  EXPECT_TRUE(std::isnan(m.ess_share()));
}

TEST(DriftHistogram, QuantilesAndRest) {
  DriftHistogram normal, mixed;
  for (const double x : Normal(0, 0.02, 20000, 1)) normal.Add(std::fabs(x));
  for (const double x : Normal(0, 0.02, 20000, 1)) mixed.Add(std::fabs(x));
  for (const double x : Normal(0, 1.0, 600, 2)) mixed.Add(std::fabs(x));
  EXPECT_GT(normal.Quantile(0.5), 0.0134);
  EXPECT_LT(normal.Quantile(0.5), 0.0134 * 1.4143);
  EXPECT_EQ(normal.RestShare(), 0);
  EXPECT_GT(mixed.RestShare(), 0.003);
  DriftHistogram none;
  EXPECT_TRUE(std::isnan(none.Quantile(0.5)));
  none.Add(0);
  EXPECT_EQ(none.Quantile(0.5), 0);
  EXPECT_EQ(none.RestShare(), 0);
}

}  // namespace
}  // namespace plumbline::analysis
