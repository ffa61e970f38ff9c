// Short losses at ln k, and losses that explode at the end of their data. False alarm and detection
// rates; if PLUMB_LONG is set, 20 times as many curves (docs/measurements/losses.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "analysis/series/series.h"

namespace plumbline::analysis::testing {
namespace {

constexpr int kCurves = 400;

int Curves() { return std::getenv("PLUMB_LONG") != nullptr ? 20 * kCurves : kCurves; }

SeriesDetector Judged(const std::vector<double>& values) {
  SeriesDetector detector;
  std::vector<SeriesEvent> events;
  for (size_t i = 0; i < values.size(); ++i)
    detector.Take(0, static_cast<int64_t>(10 * i), values[i], &events);
  return detector;
}

struct Draw {
  std::mt19937_64 random;
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  }
  double Normal() { return std::normal_distribution<double>()(random); }
  double Noise(double sigma) { return std::exp(sigma * Normal()); }
};

using Curve = std::function<std::vector<double>(Draw&, size_t)>;

// Starts at ln k, and falls as `fall` states: the share that is done to the share that has fallen.
Curve FromClasses(double noise_low, double noise_high, std::function<double(double)> fall) {
  return [=](Draw& draw, size_t points) {
    const double begin = std::log(std::floor(draw.Between(2, 21)));
    const double noise = noise_low * std::pow(noise_high / noise_low, draw.Between(0, 1));
    const double depth = draw.Between(0.05, 0.9);
    std::vector<double> values;
    for (size_t i = 0; i < points; ++i) {
      const double done = static_cast<double>(i) / static_cast<double>(points);
      values.push_back(begin * (1 - depth * fall(done)) * draw.Noise(noise));
    }
    return values;
  };
}

struct Counted {
  int flat = 0, explodes = 0, curves = 0;
};

Counted Count(const std::string& name, const Curve& curve, size_t fewest, size_t most) {
  Counted counted;
  for (int i = 0; i < Curves(); ++i) {
    Draw draw{std::mt19937_64(static_cast<uint64_t>(7'000'000 + i))};
    const auto points = static_cast<size_t>(
        draw.Between(static_cast<double>(fewest), static_cast<double>(most) + 1));
    const SeriesDetector detector = Judged(curve(draw, points));
    counted.flat += detector.LookForLearning().flat;
    counted.explodes += detector.LookForExplosion().explodes;
    ++counted.curves;
  }
  std::printf("%-28s %zu to %zu points: of %d at ln k %d, explodes %d\n", name.c_str(), fewest,
              most, counted.curves, counted.flat, counted.explodes);
  return counted;
}

TEST(ShortLevels, HealthyOnesAreLeftAlone) {
  const std::pair<const char*, Curve> curves[] = {
      {"falls at once", FromClasses(0.01, 0.3, [](double t) { return 1 - std::exp(-5 * t); })},
      {"falls evenly", FromClasses(0.01, 0.3, [](double t) { return t; })},
      {"slow start", FromClasses(0.01, 0.3, [](double t) { return t * t * t; })},
      {"flat for a half",
       FromClasses(0.01, 0.3, [](double t) { return std::max(0.0, 2 * t - 1); })},
      {"warm-up", FromClasses(0.01, 0.3, [](double t) { return t < 0.1 ? 5 * t * t : t - 0.05; })},
      {"quiet, falls evenly", FromClasses(0.0003, 0.01, [](double t) { return t; })},
      {"quiet, slow start", FromClasses(0.0003, 0.01, [](double t) { return t * t * t; })},
  };
  int flat = 0, explodes = 0;
  for (const auto& [name, curve] : curves) {
    const Counted counted = Count(name, curve, 10, 59);
    flat += counted.flat;
    explodes += counted.explodes;
  }
  EXPECT_LE(flat, 7 * Curves() / 1000);
  EXPECT_LE(explodes, 7 * Curves() / 1000);
}

TEST(ShortLevels, StuckAtClasses) {
  const Curve curve = FromClasses(0.0002, 0.0008, [](double) { return 0.0; });
  EXPECT_GE(Count("stuck at ln k", curve, 10, 59).flat, 9 * Curves() / 10);
}

// Noise of heavy tails, spikes that come back, a loss that rises as the rate warms up.
TEST(ShortLevels, NoiseIsNoExplosion) {
  const auto falling = [](double noise, bool laplace) -> Curve {
    return [=](Draw& draw, size_t points) {
      std::vector<double> values;
      for (size_t i = 0; i < points; ++i) {
        const double done = static_cast<double>(i) / static_cast<double>(points);
        const double y = laplace ? draw.Normal() * std::fabs(draw.Normal()) : draw.Normal();
        values.push_back((1 + 1.5 * std::exp(-6 * done)) * std::exp(noise * y));
      }
      return values;
    };
  };
  const Curve spike = [&](Draw& draw, size_t points) {
    std::vector<double> values = falling(0.03, false)(draw, points);
    const double high = draw.Between(2, 20);
    for (size_t i = 0; i < 5 && i < points; ++i)
      values[points - 1 - i] *= 1 + high * std::exp(-0.8 * static_cast<double>(4 - i));
    return values;
  };
  const Curve hump = [&](Draw& draw, size_t points) {
    std::vector<double> values = falling(0.03, false)(draw, points);
    for (size_t i = 0; i < points; ++i)
      values[i] *= 1 + 0.6 * static_cast<double>(i) / static_cast<double>(points);
    return values;
  };
  int explodes = 0;
  for (const double noise : {0.03, 0.2, 0.6}) {
    explodes += Count("noise", falling(noise, false), 8, 200).explodes;
    explodes += Count("heavy tails", falling(noise, true), 8, 200).explodes;
  }
  explodes += Count("a spike that falls back", spike, 8, 200).explodes;
  explodes += Count("rises by two thirds", hump, 8, 200).explodes;
  EXPECT_LE(explodes, std::max(2, 8 * Curves() / 1000));
}

TEST(ShortLevels, AnExplosionAtTheEndIsFound) {
  const Curve curve = [](Draw& draw, size_t points) {
    const auto rows = static_cast<size_t>(draw.Between(3, 7));
    const double each = draw.Between(2, 5);
    std::vector<double> values;
    for (size_t i = 0; i < points; ++i) {
      const double done = static_cast<double>(i) / static_cast<double>(points);
      const double on = i + rows < points ? 0 : static_cast<double>(i + rows + 1 - points);
      values.push_back((1.2 + 1.3 * std::exp(-6 * done)) * std::pow(each, on) * draw.Noise(0.03));
    }
    return values;
  };
  EXPECT_GE(Count("explodes at the end", curve, 12, 200).explodes, 95 * Curves() / 100);
}

// A model that breaks within the first logged interval; and losses that begin low, but learn.
TEST(ShortLevels, BreaksAfterItsFirstPoint) {
  const auto after_first = [](bool between, double height, double fall) -> Curve {
    return [=](Draw& draw, size_t points) {
      const double noise = draw.Between(0.01, 0.06);
      std::vector<double> values;
      for (size_t i = 0; i < points; ++i) {
        const double done = static_cast<double>(i) / static_cast<double>(points);
        const double times = i == 0 ? 1 : i == 1 && between ? std::sqrt(height) * 1.2 : height;
        values.push_back(2.35 * times * (i == 0 ? 1 : 1 - fall * done) * draw.Noise(noise));
      }
      return values;
    };
  };
  const auto count = [](const Curve& curve, size_t points) {
    int above = 0;
    for (int i = 0; i < Curves() / 4; ++i) {
      Draw draw{std::mt19937_64(static_cast<uint64_t>(7'500'000 + i))};
      above += Judged(curve(draw, points)).LookForEarlyBreak().breaks;
    }
    return above;
  };
  for (const size_t points : {12, 20, 60, 200}) {
    const int runs = Curves() / 4;
    const int broken = count(after_first(false, 3.1, 0), points);
    const int between = count(after_first(true, 3.1, 0), points);
    const int falls = count(after_first(false, 3.5, 0.4), points);
    const int little = count(after_first(false, 2, 0), points);
    std::printf(
        "%zu points, of %d: breaks %d, with a point between %d, falls by 40 %% %d, to twice %d\n",
        points, runs, broken, between, falls, little);
    EXPECT_GE(100 * broken, 85 * runs) << points;
    EXPECT_GE(100 * between, 85 * runs) << points;
    EXPECT_LE(50 * falls, runs) << points;
    EXPECT_EQ(little, 0) << points;
  }
}

// A fall of few points, to 0.3 to 0.8 of the first value and then level: found by the order of its
// values. Noise around one level is rarely taken for a fall.
TEST(ShortFalls, OfFewPoints) {
  const auto count = [](double end, size_t points) {
    Draw draw{std::mt19937_64(points)};
    int falls = 0;
    for (int run = 0; run < 4 * Curves(); ++run) {
      std::vector<double> values;
      for (size_t i = 0; i < points; ++i) {
        const double done = static_cast<double>(i) / static_cast<double>(points);
        values.push_back((end + (1 - end) * std::exp(-5 * done)) * draw.Noise(0.03));
      }
      falls += Judged(values).LookForFall().stays ? 1 : 0;
    }
    return falls;
  };
  for (const size_t points : {8, 10, 12, 16, 20, 23}) {
    const int runs = 4 * Curves();
    const int flat = count(1, points), little = count(0.8, points), much = count(0.6, points);
    std::printf("%zu points, of %d: level %d, to 0.8 %d, to 0.6 %d\n", points, runs, flat, little,
                much);
    EXPECT_LE(100 * flat, 2 * runs) << points;
    EXPECT_GE(100 * little, (points < 10 ? 40 : 65) * runs) << points;
    EXPECT_GE(100 * much, 95 * runs) << points;
  }
}

}  // namespace
}  // namespace plumbline::analysis::testing
