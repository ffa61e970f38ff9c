// Rises from the lowest level of a short loss that last up to its end: false alarms and power, by
// shape, length and noise. If PLUMB_LONG is set, 10 times as many (docs/measurements/losses.md).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
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

uint64_t Runs() { return std::getenv("PLUMB_LONG") != nullptr ? 200 : 20; }

// Other seeds if PLUMB_SEED is set.
std::mt19937_64 Seeded(uint64_t seed) {
  const char* other = std::getenv("PLUMB_SEED");
  return std::mt19937_64(seed + (other != nullptr ? std::strtoull(other, nullptr, 10) : 0));
}

struct Dice {
  std::mt19937_64 random;
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  }
  double Normal() { return std::normal_distribution<double>()(random); }
};

LastingRise Look(const std::vector<double>& values) {
  SeriesDetector detector;
  std::vector<SeriesEvent> events;
  for (size_t i = 0; i < values.size(); ++i)
    detector.Take(0, static_cast<int64_t>(10 * (i + 1)), values[i], &events);
  return detector.FindLastingRise();
}

// A loss that falls from 2.3 to 1.1 and from `at` of its points on is `times(done)` as high.
struct Rise {
  const char* name;
  double at;
  double (*times)(double done, double height);
};
constexpr Rise kRises[] = {
    {"step", 0.5, [](double /*done*/, double height) { return height; }},
    {"ramp", 0.5, [](double done, double height) { return 1 + (height - 1) * done; }},
    {"exponential", 0.5, [](double done, double height) { return std::pow(height, done); }},
    {"late step", 0.6, [](double /*done*/, double height) { return height; }},
};

std::vector<double> Rising(const Rise& rise, size_t points, double height, double noise,
                           uint64_t seed) {
  Dice dice{Seeded(seed)};
  std::vector<double> values;
  for (size_t i = 0; i < points; ++i) {
    const double done = static_cast<double>(i) / static_cast<double>(points);
    const double since = (done - rise.at) / (1 - rise.at);
    const double times =
        since < 0 ? 1 : rise.times(since + 1 / static_cast<double>(points), height);
    values.push_back((1.1 + 1.2 * std::exp(-8 * done)) * times * std::exp(noise * dice.Normal()));
  }
  return values;
}

constexpr size_t kRiseLengths[] = {12, 16, 20, 30, 45, 60, 100, 200};

// Percent that must be found by length, for a height and a noise.
struct Power {
  double height, noise;
  uint64_t least[std::size(kRiseLengths)];
};

TEST(LastingRises, AreFoundByShapeLengthAndNoise) {
  const Power powers[] = {
      {1.5, 0.02, {0, 0, 25, 50, 75, 75, 85, 95}}, {2, 0.02, {0, 25, 85, 90, 95, 95, 95, 95}},
      {2, 0.05, {0, 5, 50, 70, 85, 90, 95, 95}},   {2, 0.1, {0, 0, 0, 20, 45, 60, 75, 90}},
      {3, 0.1, {0, 0, 35, 60, 75, 80, 90, 95}},
  };
  for (const Rise& rise : kRises) {
    for (const Power& power : powers) {
      std::printf("%-12s to %.1f times, noise %2.0f %%:", rise.name, power.height,
                  100 * power.noise);
      for (size_t k = 0; k < std::size(kRiseLengths); ++k) {
        uint64_t found = 0, half = 0;
        for (uint64_t i = 0; i < Runs(); ++i) {
          const LastingRise look =
              Look(Rising(rise, kRiseLengths[k], power.height, power.noise, 4'000'000 + i));
          found += look.rises;
          half += look.half;
        }
        std::printf(" %zu: %3.0f (%3.0f)", kRiseLengths[k],
                    100 * static_cast<double>(found) / static_cast<double>(Runs()),
                    100 * static_cast<double>(half) / static_cast<double>(Runs()));
        EXPECT_GE(100 * found, power.least[k] * Runs()) << rise.name << " " << kRiseLengths[k];
      }
      std::printf("\n");
    }
  }
}

// Healthy: two tasks that are drawn at random, waves, noise of small batches, a spike that comes
// back, a loss that falls back after a pruning.
using Draw = std::function<std::vector<double>(Dice&, size_t)>;

std::vector<double> Around(Dice& dice, size_t points, double noise,
                           const std::function<double(double)>& shape) {
  std::vector<double> values;
  for (size_t i = 0; i < points; ++i) {
    const double done = static_cast<double>(i) / static_cast<double>(points);
    values.push_back((1 + 0.8 * std::exp(-4 * done)) * shape(done) *
                     std::exp(noise * dice.Normal()));
  }
  return values;
}

const std::pair<const char*, Draw> kStill[] = {
    {"two tasks at random",
     [](Dice& dice, size_t n) {
       const double share = dice.Between(0.2, 0.8), apart = dice.Between(1.4, 3);
       return Around(dice, n, 0.06, [&](double) { return dice.Between(0, 1) < share ? 1 : apart; });
     }},
    {"two tasks in turn",
     [](Dice& dice, size_t n) {
       const double period = dice.Between(0.08, 0.3), apart = dice.Between(1.2, 2.5);
       return Around(dice, n, 0.05,
                     [&](double done) { return std::fmod(done, period) < period / 2 ? 1 : apart; });
     }},
    {"a slow wave",
     [](Dice& dice, size_t n) {
       const double high = dice.Between(0.02, 0.12), waves = dice.Between(0.5, 4);
       return Around(dice, n, 0.03,
                     [&](double done) { return 1 + high * std::sin(6.28 * waves * done); });
     }},
    {"noise of 10 to 60 %",
     [](Dice& dice, size_t n) {
       return Around(dice, n, dice.Between(0.1, 0.6), [](double) { return 1; });
     }},
    {"noise that grows",
     [](Dice& dice, size_t n) {
       return Around(dice, n, 0.02,
                     [&](double done) { return std::exp(0.2 * done * dice.Normal()); });
     }},
    {"heavy tails",
     [](Dice& dice, size_t n) {
       return Around(dice, n, 0, [&](double) {
         return std::exp(0.1 * dice.Normal() * std::fabs(dice.Normal()));
       });
     }},
    {"a pruning",
     [](Dice& dice, size_t n) {
       const double high = dice.Between(0.5, 3);
       return Around(dice, n, 0.03, [&](double done) {
         return done < 0.5 ? 1 : 1 + high * std::exp(-8 * (done - 0.5));
       });
     }},
    {"rises by a fifth",
     [](Dice& dice, size_t n) {
       return Around(dice, n, 0.03, [](double done) { return 1 + 0.2 * done * done; });
     }},
    {"a random walk of 1 %",
     [](Dice& dice, size_t n) {
       double y = 0;
       return Around(dice, n, 0.02, [&](double) { return std::exp(y += 0.01 * dice.Normal()); });
     }},
};

TEST(LastingRises, HealthyOnesHaveNone) {
  for (const auto& [name, draw] : kStill) {
    uint64_t found = 0, runs = 10 * Runs();
    for (uint64_t i = 0; i < runs; ++i) {
      Dice dice{Seeded(5'000'000 + i)};
      const auto points = static_cast<size_t>(dice.Between(11, 257));
      found += Look(draw(dice, points)).rises;
    }
    std::printf("%-22s of %llu %llu\n", name, static_cast<unsigned long long>(runs),
                static_cast<unsigned long long>(found));
    EXPECT_LE(found * 500, runs) << name;
  }
  for (const std::string family : HealthyShort()) {
    uint64_t found = 0, runs = 10 * Runs();
    for (uint64_t i = 0; i < runs; ++i) {
      Dice dice{Seeded(6'000'000 + i)};
      const auto points = static_cast<size_t>(dice.Between(11, 257));
      const ShortCurve curve = ShortCurveOf(family, points, 6'000'000 + i);
      if (curve.rate.empty()) found += Look(curve.values).rises;
    }
    std::printf("%-22s of %llu %llu\n", family.c_str(), static_cast<unsigned long long>(runs),
                static_cast<unsigned long long>(found));
    EXPECT_LE(found * 1000, runs) << family;
  }
}

// Losses of both signs: likelihoods and Dice losses that fall below 0.
TEST(LastingRises, OfBothSigns) {
  for (const double noise : {0.01, 0.03, 0.08}) {
    uint64_t found = 0, still = 0, runs = 10 * Runs();
    for (uint64_t i = 0; i < runs; ++i) {
      Dice dice{Seeded(7'000'000 + i)};
      const auto points = static_cast<size_t>(dice.Between(20, 120));
      const double low = dice.Between(-2, -0.5), ramp = dice.Between(0.1, 1);
      for (const bool rises : {true, false}) {
        std::vector<double> values;
        for (size_t k = 0; k < points; ++k) {
          const double done = static_cast<double>(k) / static_cast<double>(points);
          const double up = std::min(1.0, std::max(0.0, done - 0.6) / 0.4 / ramp);
          values.push_back(low * (1 - std::exp(-5 * done)) + (rises ? up * (2 - low) : 0) +
                           noise * dice.Normal());
        }
        (rises ? found : still) += Look(values).rises;
      }
    }
    std::printf("both signs, noise %.2f: of %llu found %llu, false %llu\n", noise,
                static_cast<unsigned long long>(runs), static_cast<unsigned long long>(found),
                static_cast<unsigned long long>(still));
    EXPECT_GE(found * 100, 85 * runs);
    EXPECT_LE(still * 500, runs);
  }
}

// What a healthy series may have of each kind.
struct HealthyCounts {
  uint64_t explodes = 0, rises = 0, plunges = 0, warnings = 0, notes = 0;
  void Take(const std::vector<double>& values) {
    SeriesDetector detector;
    std::vector<SeriesEvent> events;
    for (size_t i = 0; i < values.size(); ++i)
      detector.Take(0, static_cast<int64_t>(i), values[i], &events);
    detector.End(&events);
    bool warns = false, note = false;
    for (const SeriesEvent& event : events) {
      if (event.what == SeriesEvent::What::kDoubled || event.what == SeriesEvent::What::kFell)
        continue;
      const bool level = event.what == SeriesEvent::What::kRise || event.excursion.warns();
      (level ? warns : note) = true;
    }
    explodes += detector.LookForExplosion().explodes;
    rises += detector.FindLastingRise().rises;
    plunges += detector.LookForPlunge().plunges;
    warnings += warns;
    notes += note;
  }
  void Print(const std::string& name, uint64_t runs) const {
    const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    std::printf(
        "%-26s of %llu: explodes %llu, rises %llu, plunges %llu, warnings %llu, notes %llu\n",
        name.c_str(), number(runs), number(explodes), number(rises), number(plunges),
        number(warnings), number(notes));
  }
};

TEST(LastingRises, HealthyOnesOfBothSigns) {
  const std::pair<const char*, double (*)(double, double, double)> families[] = {
      {"a likelihood below 0",
       [](double t, double noise, double z) {
         return 3.5 - 5 * (1 - std::exp(-5 * t)) + noise * z;
       }},
      {"a Dice loss",
       [](double t, double noise, double z) {
         return 0.1 - 0.9 * (1 - std::exp(-8 * t)) + 0.3 * noise * z;
       }},
      {"centred at 0", [](double /*t*/, double noise, double z) { return noise * z; }},
      {"a bound, heavy tails",
       [](double t, double noise, double z) {
         return 20 * std::exp(-6 * t) - 2 + 0.5 * noise * z * std::fabs(z);
       }},
  };
  for (const auto& [name, at] : families) {
    HealthyCounts counts;
    const uint64_t runs = 5 * Runs();
    for (uint64_t i = 0; i < runs; ++i) {
      Dice dice{Seeded(9'000'000 + i)};
      const auto points = static_cast<size_t>(dice.Between(20, 400));
      const double noise = std::pow(10, dice.Between(-2, -0.5));
      std::vector<double> values;
      for (size_t k = 0; k < points; ++k)
        values.push_back(
            at(static_cast<double>(k) / static_cast<double>(points), noise, dice.Normal()));
      counts.Take(values);
    }
    counts.Print(name, runs);
    EXPECT_LE(100 * (counts.explodes + counts.rises + counts.plunges), runs) << name;
    EXPECT_LE(50 * counts.warnings, runs) << name;
  }
}

// Notes of healthy positive losses: how often a report has one.
TEST(LastingRises, NotesOfHealthyOnes) {
  for (const size_t points : {20, 60, 200}) {
    HealthyCounts counts;
    uint64_t runs = 0;
    for (const std::string family : HealthyShort()) {
      for (uint64_t i = 0; i < Runs(); ++i) {
        const ShortCurve curve = ShortCurveOf(family, points, 9'500'000 + i);
        if (!curve.rate.empty()) continue;
        counts.Take(curve.values);
        ++runs;
      }
    }
    counts.Print("positive, " + std::to_string(points) + " points", runs);
    EXPECT_EQ(counts.explodes + counts.rises + counts.plunges, 0u);
    EXPECT_LE(100 * counts.warnings, runs);
    EXPECT_LE(10 * counts.notes, runs);
  }
}

// A loss without a lowest value; and likelihoods, which fall to -100 and stay.
TEST(LastingRises, RunsToMinusInfinity) {
  for (uint64_t i = 0; i < Runs(); ++i) {
    Dice dice{Seeded(8'000'000 + i)};
    const double each = dice.Between(1.3, 3), low = dice.Between(-100, -1);
    SeriesDetector falls, likelihood;
    std::vector<SeriesEvent> events;
    for (int k = 0; k < 60; ++k) {
      const double down = k < 5 ? 1 : -std::pow(each, k - 5);
      falls.Take(0, k, down * std::exp(0.1 * dice.Normal()), &events);
      likelihood.Take(0, k, 3 + low * (1 - std::exp(-0.1 * k)) + 0.1 * dice.Normal(), &events);
    }
    EXPECT_TRUE(falls.LookForPlunge().plunges) << i;
    EXPECT_NEAR(static_cast<double>(falls.LookForPlunge().onset_step), 6, 4) << i;
    EXPECT_FALSE(likelihood.LookForPlunge().plunges) << i;
  }
}

// A fall that does not slow is found whatever its first points are; one that slows is not.
TEST(LastingRises, RunsToMinusInfinityInALine) {
  using Course = double (*)(double done);
  const Course bottomless[] = {[](double t) { return t; }, [](double t) { return t * t; },
                               [](double t) { return t * std::sqrt(t); }};
  const Course slowing[] = {[](double t) { return std::log1p(20 * t) / std::log(21); },
                            [](double t) { return 1 - std::exp(-4 * t); },
                            [](double t) { return std::sqrt(t); }};
  for (const size_t points : {10, 20, 60, 200}) {
    uint64_t found = 0, wrong = 0;
    const auto plunges = [&](Course course, uint64_t seed) {
      Dice dice{Seeded(seed)};
      const double depth = dice.Between(2'000, 1e5), noise = dice.Between(0.002, 0.02);
      SeriesDetector detector;
      std::vector<SeriesEvent> events;
      for (size_t k = 0; k < points; ++k) {
        const double done = static_cast<double>(k) / static_cast<double>(points - 1);
        detector.Take(0, static_cast<int64_t>(k),
                      0.69 - depth * (course(done) + (k > 0 ? noise * dice.Normal() : 0)), &events);
      }
      return detector.LookForPlunge().plunges;
    };
    for (uint64_t i = 0; i < Runs(); ++i) {
      for (const Course course : bottomless) found += plunges(course, 8'200'000 + i);
      for (const Course course : slowing) wrong += plunges(course, 8'200'000 + i);
    }
    std::printf(
        "a line, a square, a power of 1.5, %zu points: of %zu found %zu, of those that slow %zu\n",
        points, 3 * static_cast<size_t>(Runs()), static_cast<size_t>(found),
        static_cast<size_t>(wrong));
    EXPECT_GE(100 * found, 90 * 3 * Runs()) << points;
    EXPECT_EQ(wrong, 0u) << points;
  }
}

// Epochs of equal batches and a model that no step changes; and one that it does change.
TEST(LastingRises, EpochsThatRepeat) {
  for (uint64_t i = 0; i < Runs(); ++i) {
    Dice dice{Seeded(8'500'000 + i)};
    const auto period = static_cast<size_t>(dice.Between(3, 40));
    std::vector<double> epoch;
    for (size_t k = 0; k < period; ++k)
      epoch.push_back(std::round(1e4 * (2.3 + 0.1 * dice.Normal())) / 1e4);
    if (period >= 8) epoch[0] = 2.3;  // three of four digits are 0
    SeriesDetector same, other;
    std::vector<SeriesEvent> events;
    for (size_t k = 0; k < 2 * period + 10; ++k) {
      same.Take(0, static_cast<int64_t>(k), epoch[k % period], &events);
      const double learnt = k + 1 == 2 * period + 10 ? 0.0001 : 0;
      other.Take(0, static_cast<int64_t>(k), epoch[k % period] - learnt, &events);
    }
    EXPECT_TRUE(same.LookForRepeats().repeats) << i;
    EXPECT_FALSE(other.LookForRepeats().repeats) << i;
  }
  SeriesDetector constant;
  std::vector<SeriesEvent> events;
  for (int k = 0; k < 40; ++k) constant.Take(0, k, 0.6931, &events);
  EXPECT_FALSE(constant.LookForRepeats().repeats);
}

TEST(LastingRises, NanAndFewPoints) {
  EXPECT_FALSE(Look({}).rises);
  EXPECT_FALSE(Look(std::vector<double>(40, NAN)).rises);
  EXPECT_FALSE(Look({2, 1, 1, 1, 1, 3, 3, 3, 3, 3}).rises);  // 10 points
  EXPECT_FALSE(Look(std::vector<double>(40, 1.25)).rises);
  std::vector<double> zero(40, 0.0);
  EXPECT_FALSE(Look(zero).rises);
}

}  // namespace
}  // namespace plumbline::analysis::testing
