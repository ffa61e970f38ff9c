#include "base/portable_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace plumbline {
namespace {

TEST(PortableExp, StaysWithinTwoUlp) {
  std::mt19937_64 random(1);
  for (double range : {1e-9, 1.0, 30.0, 700.0}) {
    std::uniform_real_distribution<double> pick(-range, range);
    for (int i = 0; i < 200000; ++i) {
      const double x = pick(random);
      const double expected = std::exp(x);
      ASSERT_LE(std::fabs(PortableExp(x) - expected), 2 * UlpOf(expected, DType::kF64)) << x;
    }
  }
}

TEST(PortableExp, HoldsAtItsEdges) {
  EXPECT_EQ(PortableExp(0.0), 1.0);
  EXPECT_EQ(PortableExp(-0.0), 1.0);
  EXPECT_EQ(PortableExp(-708.1), 0.0);
  EXPECT_GT(PortableExp(-707.9), 0.0);
  EXPECT_EQ(PortableExp(-INFINITY), 0.0);
  EXPECT_NEAR(PortableExp(709.6) / std::exp(709.6), 1.0, 1e-15);
  EXPECT_TRUE(std::isinf(PortableExp(709.8)));
  EXPECT_TRUE(std::isinf(PortableExp(INFINITY)));
  EXPECT_TRUE(std::isnan(PortableExp(NAN)));
}

TEST(PortableLog, StaysWithinTwoUlp) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponent(-1021, 1023);
  std::uniform_real_distribution<double> near_one(0.5, 2);
  for (int i = 0; i < 400000; ++i) {
    const double x = i % 2 == 0 ? std::exp2(exponent(random)) : near_one(random);
    const double expected = std::log(x);
    const double tolerance = std::max(2 * UlpOf(expected, DType::kF64), 0x1p-55);
    ASSERT_LE(std::fabs(PortableLog(x) - expected), tolerance) << x;
  }
  EXPECT_EQ(PortableLog(1.0), 0.0);
}

}  // namespace
}  // namespace plumbline
