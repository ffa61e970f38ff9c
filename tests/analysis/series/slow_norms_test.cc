// Tests norms that rise slowly, as at the start of learning: they are not jumps, for any length of
// the series and any change of its noise. Jumps in them are found. These seeds have no other use;
// the seeds for the choice of parameters begin at 1,000,000. If PLUMB_LONG is set, twenty times as
// many (results: docs/measurements/losses.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "analysis/series/series.h"
#include "tests/analysis/series/curves.h"

namespace plumbline::analysis::testing {
namespace {

uint64_t Times() { return std::getenv("PLUMB_LONG") != nullptr ? 20 : 1; }

double LogUniform(CurveRandom* random, double low, double high) {
  return std::exp(random->Uniform(std::log(low), std::log(high)));
}

// ---- slow changes: ln of a norm by point, at most `pace` per point ----

constexpr const char* kShapes[] = {"flat",        "line",        "s-shaped", "up and down",
                                   "down and up", "ever faster", "steps",    "saturating",
                                   "random walk", "root"};

struct Slow {
  size_t points = 0;
  double pace = 0, total = 0;  // total: ln of the overall change
  double at = 0;               // the middle of an S
  double tau = 0, walk = 0;

  explicit Slow(CurveRandom* random, size_t least = 30, size_t most = 300)
      : points(static_cast<size_t>(
            LogUniform(random, static_cast<double>(least), static_cast<double>(most)))) {
    pace = LogUniform(random, 0.003, 0.04);
    total = std::log(LogUniform(random, 1.2, 6));
    at = random->Uniform(0.2, 0.8) * static_cast<double>(points);
    tau = LogUniform(random, 10, 80);
    walk = random->Uniform(0.01, 0.03);
  }
  double S(double x, double middle) const {
    return total / (1 + std::exp(-4 * pace / total * (x - middle)));
  }
  double Mean(const std::string& shape, size_t i) const {
    const auto x = static_cast<double>(i), n = static_cast<double>(points);
    const double back = 0.6 * at + 1.2 * total / pace + 0.2 * n;
    if (shape == "line") return std::min(pace * x, std::log(20.0));
    if (shape == "s-shaped") return S(x, at);
    if (shape == "up and down") return S(x, 0.6 * at) - 0.9 * S(x, back);
    if (shape == "down and up") return S(x, back) - S(x, 0.6 * at);
    if (shape == "ever faster") return total * std::exp(std::min(0.0, pace / total * (x + 1 - n)));
    if (shape == "steps") return 0.3 * (S(x, 0.5 * at) + S(x, at) + S(x, 1.5 * at));
    if (shape == "saturating") return std::min(2 * total, 0.1 * tau) * (1 - std::exp(-x / tau));
    if (shape == "root") return std::log1p(x / 20) / 2;
    return 0;
  }
};

struct Norms {
  std::vector<double> ln;
  double noise = 0;  // Maximum noise.
};

// Returns norms with normal, Laplace or Student noise (5 degrees of freedom). It may be correlated,
// and may grow or shrink by up to four times.
Norms Draw(CurveRandom* random, const std::string& shape, const Slow& slow) {
  Norms norms;
  const double least = LogUniform(random, 0.01, 0.3);
  const double grows = random->Below(2) == 0 ? 1 : LogUniform(random, 0.25, 4);
  CurveSpec noise;
  noise.points = slow.points;
  noise.begin = noise.floor = 1;
  noise.noise = 1;
  noise.correlation = random->Below(2) == 0 ? 0 : random->Uniform(0, 0.9);
  noise.tail = static_cast<CurveSpec::Tail>(random->Below(3));
  noise.seed = random->Below(uint64_t{1} << 40);
  const std::vector<double> factors = Curve(noise);
  double walked = 0;
  for (size_t i = 0; i < slow.points; ++i) {
    if (shape == "random walk") walked += slow.walk * random->Normal();
    const double done = static_cast<double>(i) / static_cast<double>(slow.points);
    const double scale = least * std::pow(grows, done);
    norms.ln.push_back(slow.Mean(shape, i) + walked + scale * std::log(factors[i]));
  }
  norms.noise = least * std::max(1.0, grows);
  return norms;
}

// ---- the detector's result ----

struct Stated {
  bool noted = false;
  // The first event that doubled and was away at `from` or later.
  int64_t doubled_at = -1, onset = -1;
};

Stated Judge(const std::vector<double>& ln, size_t from = 0) {
  SeriesDetector detector;
  std::vector<SeriesEvent> events;
  Stated stated;
  for (size_t i = 0; i <= ln.size(); ++i) {
    events.clear();
    if (i < ln.size()) {
      detector.Take(0, static_cast<int64_t>(i), std::exp(ln[i]), &events);
    } else {
      detector.End(&events);
    }
    for (const SeriesEvent& event : events) {
      if (event.of_rise()) continue;
      stated.noted = true;
      const Excursion& e = event.excursion;
      if (stated.doubled_at >= 0 || !e.doubled() || e.last_step < static_cast<int64_t>(from))
        continue;
      stated.doubled_at = static_cast<int64_t>(std::min(i, ln.size() - 1));
      stated.onset = e.onset_step;
    }
  }
  return stated;
}

TEST(SlowNorms, AreNoJumps) {
  uint64_t curves = 0, accused = 0;
  for (const char* shape : kShapes) {
    uint64_t doubled = 0, noted = 0;
    for (uint64_t seed = 0; seed < 300 * Times(); ++seed) {
      CurveRandom random(seed * 16 + static_cast<uint64_t>(shape[0]));
      const Slow slow(&random);
      const Stated stated = Judge(Draw(&random, shape, slow).ln);
      ++curves;
      doubled += stated.doubled_at >= 0;
      noted += stated.noted;
    }
    std::printf("%-12s %5llu curves, %llu accused, %llu noted\n", shape,
                static_cast<unsigned long long>(300 * Times()),
                static_cast<unsigned long long>(doubled), static_cast<unsigned long long>(noted));
    accused += doubled;
  }
  std::printf("all: %llu curves, %llu accused\n", static_cast<unsigned long long>(curves),
              static_cast<unsigned long long>(accused));
  // The rate on the page, 1 in 1,000, plus a margin for chance.
  EXPECT_LE(static_cast<double>(accused),
            static_cast<double>(curves) / 1000 + 4 * std::sqrt(static_cast<double>(curves) / 1000));
}

// Regression test: 2.7 % per point for 50 points, then back, with 8 % noise.
TEST(SlowNorms, AHumpOfAHundredPointsIsNone) {
  uint64_t accused = 0;
  for (uint64_t seed = 0; seed < 200 * Times(); ++seed) {
    CurveRandom random(seed + 70'000);
    std::vector<double> ln;
    const size_t points = 60 + random.Below(120);
    for (size_t i = 0; i < points; ++i) {
      const double x = static_cast<double>(i);
      ln.push_back(std::log(0.53) + 0.027 * std::min(x, 50.0) - 0.012 * std::max(x - 75, 0.0) +
                   0.08 * random.Normal());
    }
    accused += Judge(ln).doubled_at >= 0;
  }
  EXPECT_EQ(accused, 0u);
}

struct Tally {
  uint64_t planted = 0, found = 0, soon = 0, at_onset = 0;
};

// Plants a rise to `least` times or more, and 14 times the noise, immediately or over `ramp`
// points.
Tally Plant(const std::string& what, size_t length, size_t ramp, double least, size_t points_least,
            size_t points_most) {
  Tally tally;
  for (uint64_t seed = 0; seed < 300 * Times(); ++seed) {
    CurveRandom random(seed + 80'000);
    const std::string shape = kShapes[seed % std::size(kShapes)];
    const Slow slow(&random, points_least, points_most);
    Norms norms = Draw(&random, shape, slow);
    const size_t at = 25 + random.Below(slow.points - 45);
    const double height = std::max(std::log(least), 14 * norms.noise) * random.Uniform(1, 1.5);
    for (size_t i = at; i < std::min(slow.points, at + length); ++i) {
      const double done = static_cast<double>(i - at + 1) / static_cast<double>(ramp);
      norms.ln[i] += height * std::min(1.0, done);
    }
    const Stated stated = Judge(norms.ln, at);
    const auto onset = static_cast<int64_t>(at);
    ++tally.planted;
    tally.found += stated.doubled_at >= 0;
    tally.soon += stated.doubled_at >= 0 && stated.doubled_at < onset + 3;
    tally.at_onset += stated.doubled_at >= 0 && std::abs(stated.onset - onset) <= 2;
  }
  std::printf(
      "%-30s planted %4llu found %4llu within 3 points %4llu at its onset %4llu\n", what.c_str(),
      static_cast<unsigned long long>(tally.planted), static_cast<unsigned long long>(tally.found),
      static_cast<unsigned long long>(tally.soon), static_cast<unsigned long long>(tally.at_onset));
  return tally;
}

// Tests jumps. If one is not found, the norm is already away or, in short series, has too little
// history.
TEST(SlowNorms, JumpsInThemAreFound) {
  const Tally one = Plant("one point, 4 times, short", 1, 1, 4, 60, 300);
  const Tally lasting = Plant("lasting, 4 times, short", 1'000'000, 1, 4, 60, 300);
  const Tally late = Plant("20 points, 4 times, long", 20, 1, 4, 600, 601);
  const Tally low = Plant("lasting, 2.5 times, long", 1'000'000, 1, 2.5, 600, 601);
  const Tally slope = Plant("over 4 points, 4 times, long", 1'000'000, 4, 4, 600, 601);
  for (const Tally& tally : {one, lasting, late, slope}) {
    EXPECT_GE(tally.found, tally.planted * 80 / 100);
    EXPECT_GE(tally.at_onset, tally.planted * 70 / 100);
  }
  EXPECT_GE(low.found, low.planted * 70 / 100);
}

}  // namespace
}  // namespace plumbline::analysis::testing
