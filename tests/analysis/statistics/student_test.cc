// Tests Student's t against tables and against its integrated density.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "analysis/statistics/statistics.h"

namespace plumbline {
namespace {

// Quantiles from printed tables.
TEST(Student, QuantilesOfTables) {
  EXPECT_NEAR(StudentQuantile(0.975, 1), 12.7062047, 1e-6);
  EXPECT_NEAR(StudentQuantile(0.95, 4), 2.1318468, 1e-6);
  EXPECT_NEAR(StudentQuantile(0.9975, 6), 4.3168271, 1e-6);
  EXPECT_NEAR(StudentQuantile(0.9975, 9), 3.6896624, 1e-6);
  EXPECT_NEAR(StudentQuantile(0.995, 30), 2.7499957, 1e-6);
  EXPECT_NEAR(StudentQuantile(0.975, 1e7), 1.9599642, 1e-5);
  EXPECT_NEAR(StudentQuantile(0.05, 4), -2.1318468, 1e-6);
  EXPECT_EQ(StudentQuantile(0.5, 3), 0);
}

double Density(double t, double freedom) {
  return std::exp(std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2) -
                  std::log(freedom * std::numbers::pi) / 2 -
                  (freedom + 1) / 2 * std::log1p(t * t / freedom));
}

// Returns the integral from 0 by Simpson's rule: exact to 1e-10 at this step.
double Integrated(double t, double freedom) {
  constexpr int kSteps = 20000;
  const double h = t / kSteps;
  double sum = Density(0, freedom) + Density(t, freedom);
  for (int i = 1; i < kSteps; ++i) sum += (i % 2 == 1 ? 4 : 2) * Density(i * h, freedom);
  return 0.5 + sum * h / 3;
}

TEST(Student, IsTheIntegralOfItsDensity) {
  for (const double freedom : {1.0, 2.5, 4.4, 9.0, 30.0, 250.0}) {
    for (const double t : {0.01, 0.5, 1.0, 2.5, 6.0}) {
      EXPECT_NEAR(StudentCdf(t, freedom), Integrated(t, freedom), 1e-9) << t << " " << freedom;
      EXPECT_NEAR(StudentCdf(-t, freedom), 1 - Integrated(t, freedom), 1e-9);
    }
  }
}

TEST(Student, QuantileInverts) {
  for (const double freedom : {0.5, 1.0, 4.4, 60.0, 1e5}) {
    for (const double p : {1e-6, 0.01, 0.3, 0.9, 0.9975, 1 - 1e-7})
      EXPECT_NEAR(StudentCdf(StudentQuantile(p, freedom), freedom), p, 1e-9);
  }
}

TEST(Student, NonsenseGivesNaN) {
  for (const double p : {0.0, 1.0, -1.0, std::nan("")})
    EXPECT_TRUE(std::isnan(StudentQuantile(p, 3)));
  EXPECT_TRUE(std::isnan(StudentQuantile(0.9, 0)));
  EXPECT_TRUE(std::isnan(StudentQuantile(0.9, std::nan(""))));
  EXPECT_TRUE(std::isnan(StudentCdf(std::nan(""), 3)));
}

}  // namespace
}  // namespace plumbline
