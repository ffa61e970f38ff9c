// Tests the slope at one end of a few points: exact on lines and parabolas, correct errors with
// noise.
#include "analysis/rates/line_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/rules/support/spec_values.h"

namespace plumbline::analysis {
namespace {

using rules::testing::Draw;
using Points = std::vector<std::pair<double, double>>;

Points Parabola(double a, double b, double c, double first, int n, double gap) {
  Points points;
  for (int i = 0; i < n; ++i) {
    const double x = first + gap * i;
    points.emplace_back(x, a + b * x + c * x * x);
  }
  return points;
}

TEST(FitSlope, ParabolasAreMetExactly) {
  Draw draw(1);
  for (int i = 0; i < 200; ++i) {
    const double b = draw.Normal(), c = draw.Normal() / 1000, first = 1e4 * draw.Uniform();
    const Points points = Parabola(draw.Normal(), b, c, first, 4 + i % 60, 1 + i % 7);
    const double at = points.back().first + 1, expected = b + 2 * c * at;
    const SlopeAt fitted = FitSlope(points, at);
    // y is of the order of c * 1e8, with precision 1e-16 of that.
    EXPECT_NEAR(fitted.slope, expected, 1e-5 * (1 + std::fabs(expected)));
    EXPECT_LT(fitted.error, 1e-5 * (1 + std::fabs(expected)));
  }
}

// Tests that in nearly all of 1,000 noisy lines, the slope is within three of its errors.
TEST(FitSlope, TheErrorIsHonest) {
  int outside = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Draw draw(seed);
    Points points = Parabola(1, -0.01, 0, 500, 32, 1);
    for (auto& [x, y] : points) y += 0.02 * draw.Normal();
    const SlopeAt fitted = FitSlope(points, 532);
    outside += std::fabs(fitted.slope + 0.01) <= 3 * fitted.error ? 0 : 1;
  }
  EXPECT_LE(outside, 15);  // 0.5 % of a t with 29 degrees of freedom, plus a margin
}

TEST(FitSlope, TooLittleIsReportedAsSuch) {
  EXPECT_TRUE(std::isnan(FitSlope(Parabola(1, 1, 0, 0, 3, 1), 3).slope));
  EXPECT_TRUE(std::isnan(FitSlope(Parabola(1, 1, 0, 5, 8, 0), 5).slope));
  EXPECT_TRUE(std::isnan(FitSlope({}, 0).slope));
}

}  // namespace
}  // namespace plumbline::analysis
