// Losses that break between their first row and the second: power and false alarms. If PLUMB_LONG
// is set, 10 times as many.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "analysis/series/series.h"
#include "tests/analysis/series/short_curves.h"

namespace plumbline::analysis::testing {
namespace {

uint64_t Breaks() { return std::getenv("PLUMB_LONG") != nullptr ? 200 : 20; }

struct Chance {
  std::mt19937_64 random;
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  }
  double Normal() { return std::normal_distribution<double>()(random); }
};
using DrawBreak = std::function<std::vector<double>(Chance&, size_t)>;

EarlyBreak Break(const std::vector<double>& values) {
  SeriesDetector detector;
  std::vector<SeriesEvent> events;
  for (size_t i = 0; i < values.size(); ++i)
    detector.Take(0, static_cast<int64_t>(10 * (i + 1)), values[i], &events);
  return detector.LookForEarlyBreak();
}

// One point before it breaks, or another one on the way up.
TEST(EarlyBreaks, AreFoundByLengthAndNoise) {
  for (const double noise : {0.01, 0.03, 0.06}) {
    for (const size_t points : {10, 20, 60, 200}) {
      uint64_t found = 0;
      for (uint64_t i = 0; i < 2 * Breaks(); ++i) {
        Chance dice{std::mt19937_64(9'000'000 + i)};
        std::vector<double> values = {2.35};
        if (i % 2 == 0) values.push_back(5.2);
        while (values.size() < points) values.push_back(7.3 * std::exp(noise * dice.Normal()));
        const EarlyBreak look = Break(values);
        found += look.breaks;
        if (look.breaks) {
          EXPECT_EQ(look.step, 20);
        }
      }
      EXPECT_GE(found * 100, 2 * Breaks() * 85) << points << " points, noise " << noise;
    }
  }
}

// Healthy: the first row is that of one part or low by chance, and the loss falls afterwards; a
// rise by less than twice; a value near the first one later.
TEST(EarlyBreaks, HealthyOnesHaveNone) {
  const std::pair<const char*, DrawBreak> healthy[] = {
      {"falls after its first row",
       [](Chance& dice, size_t n) {
         std::vector<double> values;
         for (size_t i = 0; i < n; ++i)
           values.push_back(
               (4 + 3 * std::exp(-4.0 * static_cast<double>(i) / static_cast<double>(n))) *
               std::exp(0.05 * dice.Normal()));
         values[0] = dice.Between(0.1, 2);
         return values;
       }},
      {"a queue that fills",
       [](Chance& dice, size_t n) {
         std::vector<double> values;
         for (size_t i = 0; i < n; ++i)
           values.push_back(std::log(1 + 256 * static_cast<double>(i + 1)) + 0.05 * dice.Normal() -
                            2.5 * static_cast<double>(i) / static_cast<double>(n));
         return values;
       }},
      {"rises by a half",
       [](Chance& dice, size_t n) {
         std::vector<double> values(n, 0);
         for (double& value : values) value = 1.5 * std::exp(0.02 * dice.Normal());
         values[0] = 1;
         return values;
       }},
      {"two tasks at random",
       [](Chance& dice, size_t n) {
         std::vector<double> values(n, 0);
         for (double& value : values)
           value = (dice.Between(0, 1) < 0.2 ? 1 : 4) * std::exp(0.02 * dice.Normal());
         values[0] = 1;
         return values;
       }},
  };
  for (const auto& [name, draw] : healthy) {
    uint64_t found = 0;
    for (uint64_t i = 0; i < 10 * Breaks(); ++i) {
      Chance dice{std::mt19937_64(9'500'000 + i)};
      found += Break(draw(dice, static_cast<size_t>(dice.Between(20, 257)))).breaks;
    }
    // Of 20 rows of two tasks the first may be the only easy one: 1 in 70 draws.
    EXPECT_LE(found * 500, 10 * Breaks()) << name;
  }
  for (const std::string family : HealthyShort()) {
    uint64_t found = 0;
    for (uint64_t i = 0; i < 10 * Breaks(); ++i) {
      Chance dice{std::mt19937_64(9'600'000 + i)};
      const auto points = static_cast<size_t>(dice.Between(10, 257));
      found += Break(ShortCurveOf(family, points, 9'600'000 + i).values).breaks;
    }
    EXPECT_EQ(found, 0u) << family;
  }
}

}  // namespace
}  // namespace plumbline::analysis::testing
