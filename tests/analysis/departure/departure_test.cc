// Tests the definition of a departure, by cases that are verifiable by hand and by an independent
// implementation of the estimate.
#include "analysis/departure/departure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/analysis/departure/simulated_curves.h"

namespace plumbline::departure {
namespace {

using testing::CurveMaker;
using testing::CurvePlan;

TEST(Departure, OneRunEachCannotResolveUnder18PerThousand) {
  const Curves a = {std::vector<double>(640, 1.0)}, b = {std::vector<double>(640, 1.0)};
  const Comparison c = Compare(a, b);
  EXPECT_EQ(c.block, 10u);
  EXPECT_FALSE(c.seeds_known);
  // t with 6 degrees of freedom at 0.9975, times 0.003, times the square root of 2.
  EXPECT_NEAR(c.smallest, 4.3168271 * 0.003 * std::sqrt(2.0), 1e-9);
  EXPECT_FALSE(c.departure.has_value());
}

// Tests that without noise, the threshold and the onset are exact.
TEST(Departure, ExactSteps) {
  for (const size_t points : {64u, 65u, 127u, 128u, 500u, 1000u, 5003u}) {
    // Half of eight blocks are four blocks from a step in the middle, which then resembles noise.
    const bool few = points < 100;
    for (const size_t at : {few ? 8 : points / 3, few ? 9 : points / 2 + 1}) {
      for (const double step : {0.0180, 0.0184, -0.0184, 0.2}) {
        Curves a = {std::vector<double>(points, 1.0)}, b = a;
        for (size_t p = at; p < points; ++p) b[0][p] += step;
        const Comparison c = Compare(a, b);
        ASSERT_GT(c.block, 0u);
        ASSERT_EQ(c.departure.has_value(), std::fabs(step) > 0.0183) << points << " " << step;
        if (!c.departure) continue;
        EXPECT_EQ(c.departure->onset, at) << points << " " << step;
        EXPECT_NEAR(c.departure->size, step, 1e-12);
      }
    }
  }
}

TEST(Departure, FromTheBeginningAndTwoBlocksAlone) {
  Curves a = {std::vector<double>(640, 1.0)}, b = {std::vector<double>(640, 1.1)};
  Comparison c = Compare(a, b);
  ASSERT_TRUE(c.departure.has_value());
  EXPECT_EQ(c.departure->onset, 0u);
  b = a;
  for (size_t p = 300; p < 320; ++p) b[0][p] = 2;  // two blocks of ten
  EXPECT_FALSE(Compare(a, b).departure.has_value()) << "a spike is no departure";
  for (size_t p = 320; p < 330; ++p) b[0][p] = 2;
  ASSERT_TRUE(Compare(a, b).departure.has_value());
  EXPECT_EQ(Compare(a, b).departure->onset, 300u);
}

TEST(Departure, TooFewPoints) {
  const Curves a = {std::vector<double>(63, 1.0)}, b = {std::vector<double>(63, 9.0)};
  EXPECT_EQ(Compare(a, b).block, 0u);
  EXPECT_FALSE(Compare(a, b).departure.has_value());
  EXPECT_GT(Compare({std::vector<double>(64, 1.0)}, {std::vector<double>(64, 9.0)}).block, 0u);
}

// Tests that if the sides are swapped, the point is the same and the sign is opposite.
TEST(Departure, SidesChangePlaces) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    CurveMaker maker(seed);
    const CurvePlan plan = {.step = 0.05};
    const Curves a = maker.Side(2, plan, false), b = maker.Side(3, plan, true);
    const Comparison one = Compare(a, b), other = Compare(b, a);
    ASSERT_TRUE(one.departure && other.departure);
    EXPECT_EQ(one.departure->onset, other.departure->onset);
    EXPECT_NEAR(one.departure->size, -other.departure->size, 1e-12);
  }
}

double MedianOf(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

// Returns the threshold for one block size, implemented directly from the definition.
std::vector<double> Reference(const Curves& a, const Curves& b, size_t size, double t) {
  const size_t blocks = a[0].size() / size;
  std::vector<double> x, s2, T;
  const double df = static_cast<double>(a.size() + b.size()) - 2;
  for (size_t j = 0; j < blocks; ++j) {
    double sum = 0, mean[2] = {0, 0};
    for (const Curves* side : {&a, &b}) {
      std::vector<double> m;
      for (const auto& run : *side) {
        const size_t end = j + 1 == blocks ? run.size() : (j + 1) * size;
        m.push_back(MedianOf(
            {run.begin() + static_cast<long>(j * size), run.begin() + static_cast<long>(end)}));
      }
      double& mu = mean[side == &b];
      for (const double v : m) mu += v / static_cast<double>(m.size());
      for (const double v : m) sum += (v - mu) * (v - mu);
    }
    x.push_back(mean[1] - mean[0]);
    s2.push_back(df > 0 ? sum / df : 0);
  }
  double h = 0;
  for (const size_t lag : {1u, 4u}) {
    std::vector<double> d;
    for (size_t j = lag; j < blocks; ++j) d.push_back(std::fabs(x[j] - x[j - lag]));
    h = std::max(h, 1.4826 * MedianOf(d) / std::sqrt(2.0));
  }
  for (size_t j = 0; j < blocks; ++j) {
    const size_t first = j < 2 ? 0 : j - 2, last = std::min(blocks - 1, j + 2);
    const double s =
        MedianOf({s2.begin() + static_cast<long>(first), s2.begin() + static_cast<long>(last + 1)});
    const double v = (6 * 0.003 * 0.003 + df * s) / (6 + df);
    T.push_back(std::sqrt(
        t * t * v * (1.0 / static_cast<double>(a.size()) + 1.0 / static_cast<double>(b.size())) +
        9 * h * h));
  }
  return T;
}

TEST(Departure, SmallestIsTheMedianThreshold) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CurveMaker maker(seed);
    const CurvePlan plan = {.points = 900 + 13 * seed, .memory = 0.5};
    const Curves a = maker.Side(3, plan, false), b = maker.Side(3, plan, false);
    const double t = 3.5814062;  // 0.9975 of Student's t with 10 degrees of freedom
    const size_t n = a[0].size();
    const double fine = MedianOf(Reference(a, b, (n + 63) / 64, t));
    const double coarse = MedianOf(Reference(a, b, (n + 15) / 16, t));
    EXPECT_NEAR(Compare(a, b).smallest, std::min(fine, coarse), 1e-8);
  }
}

// Tests fewer than 64 points: no block, but still a result with a given error.
TEST(FewPoints, SignsDistinguishTheSidesAndSeedsDoNot) {
  for (const size_t points : {10u, 20u, 60u}) {
    uint64_t found = 0, wrong = 0;
    constexpr uint64_t kRuns = 400;
    for (uint64_t seed = 0; seed < kRuns; ++seed) {
      CurveMaker maker(90'000 + seed);
      const CurvePlan plan = {.points = points};
      const Curves a = maker.Side(1, plan, false), b = maker.Side(1, plan, false);
      ASSERT_EQ(Compare(a, b).block, 0u);
      wrong += SignTest(a, b).apart;
      Curves high = b;
      for (double& y : high[0]) y += std::log(1.1);
      found += SignTest(a, high).apart;
    }
    EXPECT_LE(wrong, kRuns / 50) << points;
    EXPECT_GE(found, kRuns * 98 / 100) << points;
    std::printf("sign test, %zu points: of %llu equal ones %llu separated, of 10 %% above %llu\n",
                points, static_cast<unsigned long long>(kRuns),
                static_cast<unsigned long long>(wrong), static_cast<unsigned long long>(found));
  }
  const Curves none(1);
  EXPECT_EQ(SignTest(none, none).points, 0u);
  EXPECT_FALSE(SignTest(Curves{{0, 0, 0}}, Curves{{1, 1, 1}}).apart) << "three signs are few";
  const EndDifference end = EndsApart(Curves{{0, 0, 0, 0}}, Curves{{9, 1, 2, 3}});
  EXPECT_EQ(end.points, 3u);
  EXPECT_EQ(end.size, 2);
}

}  // namespace
}  // namespace plumbline::departure
