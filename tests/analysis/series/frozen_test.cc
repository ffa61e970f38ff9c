// Series that stand at one value digit for digit up to their end, and healthy ones that look
// similar: that converge, are rounded, or are filled with the value before.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "analysis/series/series.h"

namespace plumbline::analysis::testing {
namespace {

uint64_t Seeds() { return std::getenv("PLUMB_LONG") != nullptr ? 400 : 20; }

struct Frozen {
  std::mt19937_64 random;
  int points = 0;
  double noise = 0, begin = 0, low = 0;
  double Normal() { return std::normal_distribution<double>()(random); }
  // A loss that falls, with noise.
  double Loss(int i) {
    const double done = static_cast<double>(i) / points;
    return (low + (begin - low) * std::exp(-5 * done)) * std::exp(noise * Normal());
  }
};

Frozen Drawn(uint64_t seed, int points) {
  Frozen drawn{std::mt19937_64(seed), points};
  drawn.noise =
      std::exp(std::uniform_real_distribution<>(std::log(0.003), std::log(0.1))(drawn.random));
  drawn.begin = std::uniform_real_distribution<>(1, 9)(drawn.random);
  drawn.low = drawn.begin * std::uniform_real_distribution<>(0.1, 0.9)(drawn.random);
  return drawn;
}

double Digits(double value, int decimals) {
  const double unit = std::pow(10, decimals);
  return std::round(value * unit) / unit;
}

FrozenFigures LookAt(const std::vector<double>& values) {
  SeriesDetector detector;
  std::vector<SeriesEvent> events;
  for (size_t i = 0; i < values.size(); ++i)
    detector.Take(0, static_cast<int64_t>(i), values[i], &events);
  return detector.LookForFrozen();
}

TEST(Frozen, TheNewestPartStandsDigitForDigit) {
  for (const int points : {20, 60, 200}) {
    uint64_t found = 0;
    for (uint64_t seed = 0; seed < Seeds(); ++seed) {
      Frozen drawn = Drawn(seed, points);
      const int from =
          points - std::max(10, static_cast<int>(points * (0.2 + 0.4 * (seed % 3) / 2)));
      const int decimals = seed % 2 == 0 ? 4 : 15;
      std::vector<double> values;
      for (int i = 0; i < points; ++i)
        values.push_back(i > from ? values.back() : Digits(drawn.Loss(i), decimals));
      const FrozenFigures figures = LookAt(values);
      found += figures.frozen && figures.step == from ? 1 : 0;
    }
    EXPECT_GE(found, Seeds() * 8 / 10) << points << " points";
  }
}

using Twin = std::function<double(Frozen&, int)>;

void ExpectNone(const char* name, const Twin& twin) {
  for (const int points : {20, 60, 200, 1000}) {
    for (uint64_t seed = 0; seed < Seeds(); ++seed) {
      Frozen drawn = Drawn(seed, points);
      std::vector<double> values;
      for (int i = 0; i < points; ++i) values.push_back(twin(drawn, i));
      EXPECT_FALSE(LookAt(values).frozen) << name << ", " << points << " points, seed " << seed;
    }
  }
}

TEST(Frozen, HealthyTwins) {
  ExpectNone("noise", [](Frozen& drawn, int i) { return Digits(drawn.Loss(i), 4); });
  ExpectNone("three digits", [](Frozen&, int i) { return i > 9 ? 0.123 : 0.3 - 0.02 * i; });
  // Full batches: each step's distance from the limit is a share of the one before.
  for (const double share : {0.05, 0.3, 0.7, 0.9, -0.3, -0.7, -0.95}) {
    for (const int decimals : {4, 6, 12}) {
      ExpectNone("converges", [=](Frozen& drawn, int i) {
        return Digits(drawn.low + drawn.begin * std::pow(share, i + 1), decimals);
      });
    }
  }
  // Noise that the rate takes away: to a tenth six times, or to 0.
  ExpectNone("rate falls in steps", [](Frozen& drawn, int i) {
    return Digits(
        drawn.low * std::exp(drawn.noise * std::pow(0.1, 6 * i / drawn.points) * drawn.Normal()),
        4);
  });
  ExpectNone("rate falls", [](Frozen& drawn, int i) {
    const double done = static_cast<double>(i) / drawn.points;
    return Digits(drawn.low * std::exp(drawn.noise * std::pow(1 - done, 3) * drawn.Normal()), 4);
  });
  ExpectNone("bf16", [](Frozen& drawn, int i) {
    return Digits(drawn.low * std::exp(0.2 * drawn.noise * drawn.Normal()) * 128, 0) / 128 + 0 * i;
  });
  double held = 0;
  ExpectNone("filled with the value before", [&](Frozen& drawn, int i) {
    const int every = 11;
    return held = i % every == 0 ? Digits(drawn.Loss(i), 4) : held;
  });
}

TEST(Frozen, NanZeroAndFewPoints) {
  EXPECT_FALSE(LookAt({}).frozen);
  EXPECT_FALSE(LookAt(std::vector<double>(40, NAN)).frozen);
  EXPECT_FALSE(LookAt(std::vector<double>(40, 0.6931)).frozen);  // LearningFigures::constant
  std::vector<double> values = {2.3456, 2.1254, 2.2211, 1.9876, 1.8765, 1.7767, 1.9123};
  values.resize(values.size() + 8, 1.9123);
  EXPECT_FALSE(LookAt(values).frozen);  // 9 equal ones
  values.push_back(1.9123);
  EXPECT_TRUE(LookAt(values).frozen);
  values.push_back(1.9122);
  EXPECT_FALSE(LookAt(values).frozen);
  std::vector<double> zeros = {0.7654, 0.3212, 0.5432, 0.2345, 0.4567, 0.3456};
  zeros.resize(40, 0.0);
  EXPECT_FALSE(LookAt(zeros).frozen);
}

}  // namespace
}  // namespace plumbline::analysis::testing
