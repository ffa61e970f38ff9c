// Measures false alarm rate and power by simulation. If PLUMB_LONG=1, ten times as many pairs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tests/analysis/departure/simulated_curves.h"

namespace plumbline::departure {
namespace {

using testing::CurveMaker;
using testing::CurvePlan;

int Pairs() { return std::getenv("PLUMB_LONG") != nullptr ? 4000 : 400; }

struct Found {
  double rate = 0;
  double onset_error = 0;  // Mean distance from `at`, in points.
};

Found Simulate(const CurvePlan& plan, size_t a, size_t b, uint64_t seed) {
  Found found;
  int count = 0;
  for (int i = 0; i < Pairs(); ++i) {
    CurveMaker maker(seed + static_cast<uint64_t>(i));
    const Curves left = maker.Side(a, plan, false), right = maker.Side(b, plan, true);
    const Comparison c = Compare(left, right);
    if (!c.departure) continue;
    ++count;
    found.onset_error +=
        std::fabs(static_cast<double>(c.departure->onset) - static_cast<double>(plan.at));
  }
  if (count > 0) found.onset_error /= count;
  found.rate = static_cast<double>(count) / Pairs();
  return found;
}

double Wide(double share) { return 3 * std::sqrt(share * (1 - share) / Pairs()); }

struct Healthy {
  const char* name;
  CurvePlan plan;
};

const Healthy kHealthy[] = {
    {"white", {}},
    {"quiet", {.noise = 0.001}},
    {"loud", {.noise = 0.05}},
    {"slow noise", {.memory = 0.9}},
    {"wandering", {.seeds = 0.002, .wander = 0.002}},
    {"few points", {.points = 70, .at = 35}},
    {"many points", {.points = 6000, .at = 3000}},
};

TEST(DepartureSimulated, FalseAlarms) {
  uint64_t seed = 10000;
  for (const auto& [name, plan] : kHealthy) {
    for (const size_t runs : {1u, 3u, 5u}) {
      const Found found = Simulate(plan, runs, runs, seed += 100000);
      std::printf("healthy %-12s %zu runs a side: %.4f\n", name, runs, found.rate);
      const double most = runs == 1 ? 0.023 : 0.033;
      EXPECT_LE(found.rate, most + Wide(most)) << name << " " << runs;
    }
  }
}

TEST(DepartureSimulated, Power) {
  for (const size_t runs : {1u, 3u}) {
    const Found five = Simulate({.step = 0.05}, runs, runs, 5);
    const Found three = Simulate({.step = 0.03}, runs, runs, 6);
    const Found ramp = Simulate({.ramp = 0.08}, runs, runs, 7);
    std::printf(
        "%zu runs a side: step of 5 %% %.3f (onset off by %.1f points), of 3 %% %.3f (%.1f), "
        "ramp to 8 %% %.3f\n",
        runs, five.rate, five.onset_error, three.rate, three.onset_error, ramp.rate);
    EXPECT_GE(five.rate, 0.995);
    EXPECT_LE(five.onset_error, 12);
    EXPECT_GE(ramp.rate, 0.9);
    if (runs == 3) {
      EXPECT_GE(three.rate, 0.99);
    } else {
      EXPECT_GE(three.rate, 0.45 - Wide(0.45));
    }
  }
}

}  // namespace
}  // namespace plumbline::departure
