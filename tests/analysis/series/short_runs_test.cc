// Measures short runs: false alarm and detection rates of the rules on whole courses, at 10, 20, 60
// and 200 points. If PLUMB_LONG is set, 5 times as many; tables: docs/measurements/short_runs.md.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "analysis/series/series.h"
#include "tests/analysis/series/curves.h"
#include "tests/analysis/series/short_curves.h"

namespace plumbline::analysis::testing {
namespace {

constexpr size_t kLengths[] = {10, 20, 60, 200, 1000};

uint64_t Seeds() { return std::getenv("PLUMB_LONG") != nullptr ? 200 : 40; }

struct Look {
  bool above = false, rises = false, flat = false, hidden = false;
  bool before = false;  // If set, the earlier detectors (excursions and rises) give a warning.
};

Look LookAt(const ShortCurve& curve) {
  SeriesDetector detector;
  RateWatch watch;
  std::vector<SeriesEvent> events;
  for (size_t i = 0; i < curve.values.size(); ++i) {
    const auto step = static_cast<int64_t>(i);
    if (!curve.rate.empty()) {
      const RateMove move = watch.Take(0, step, curve.rate[i]);
      if (move.rose) detector.RestartRate();
      if (move.restarted) detector.FollowRestart(watch.restart());
      if (move.back) detector.RateIsBack(&events);
    }
    detector.Take(0, step, curve.values[i], &events);
  }
  detector.End(&events);
  Look look;
  for (const SeriesEvent& event : events) {
    look.before |= event.what == SeriesEvent::What::kRise ||
                   (event.what != SeriesEvent::What::kFell && event.excursion.warns());
  }
  look.above = detector.LookAtEnd().above || detector.LookForExplosion().explodes;
  look.rises = detector.FindLastingRise().rises;
  const LearningFigures learning = detector.LookForLearning();
  look.flat = learning.flat;
  look.hidden = learning.hidden;
  return look;
}

struct Sum {
  uint64_t above = 0, rises = 0, flat = 0, hidden = 0, before = 0;
};

Sum Judge(const std::string& family, size_t points) {
  Sum sum;
  for (uint64_t seed = 0; seed < Seeds(); ++seed) {
    const Look look = LookAt(ShortCurveOf(family, points, 3'000'000 + seed));
    sum.above += look.above;
    sum.rises += look.rises;
    sum.flat += look.flat;
    sum.hidden += look.hidden;
    sum.before += look.before;
  }
  return sum;
}

void Print(const std::string& family, size_t points, const Sum& sum) {
  std::printf(
      "%-21s %4zu points: of %llu ends above %llu, rises to its end %llu, flat %llu (hidden %llu); "
      "excursions and "
      "rises %llu\n",
      family.c_str(), points, static_cast<unsigned long long>(Seeds()),
      static_cast<unsigned long long>(sum.above), static_cast<unsigned long long>(sum.rises),
      static_cast<unsigned long long>(sum.flat), static_cast<unsigned long long>(sum.hidden),
      static_cast<unsigned long long>(sum.before));
}

TEST(ShortRuns, HealthyOnesAreLeftAlone) {
  uint64_t flat = 0, rises = 0, runs = 0;
  for (const std::string family : HealthyShort()) {
    for (const size_t points : kLengths) {
      const Sum sum = Judge(family, points);
      Print(family, points, sum);
      EXPECT_EQ(sum.above, 0u) << family << " " << points;
      rises += sum.rises;
      if (family == "converged") continue;  // a known false alarm, documented on the page
      flat += sum.flat;
      runs += Seeds();
    }
  }
  EXPECT_LE(flat * 500, runs) << "one in 500 at most";
  EXPECT_LE(rises * 3000, runs) << "one in 3,000 at most";
}

TEST(ShortRuns, RuinedOnesAreFound) {
  // The required detection rate in percent, by points.
  const std::map<std::string, std::vector<uint64_t>> least = {
      {"breaks-early", {95, 100, 100, 100, 100}},
      {"explodes", {100, 100, 100, 100, 100}},
      {"ruined", {80, 100, 100, 100, 100}},
      {"diverges-late", {40, 95, 100, 100, 100}},
      {"ramps", {20, 50, 75, 75, 75}},
  };
  for (const auto& [family, shares] : least) {
    for (size_t i = 0; i < shares.size(); ++i) {
      const Sum sum = Judge(family, kLengths[i]);
      Print(family, kLengths[i], sum);
      EXPECT_GE(100 * sum.above, shares[i] * Seeds()) << family << " " << kLengths[i];
      EXPECT_EQ(sum.flat, 0u) << family;
    }
  }
}

TEST(ShortRuns, ThoseThatLearnNothingAreFound) {
  const std::map<std::string, std::vector<uint64_t>> least = {
      {"never-learns-uniform", {0, 0, 75, 90, 80}},
      {"never-learns", {0, 0, 70, 90, 80}},
      {"swallowed", {0, 0, 15, 45, 60}},
  };
  for (const auto& [family, shares] : least) {
    for (size_t i = 0; i < shares.size(); ++i) {
      const Sum sum = Judge(family, kLengths[i]);
      Print(family, kLengths[i], sum);
      EXPECT_GE(100 * sum.flat, shares[i] * Seeds()) << family << " " << kLengths[i];
      EXPECT_EQ(sum.above, 0u) << family;
    }
  }
}

// An evaluation as a function of the completed fraction of the run; and its noise.
struct Evaluation {
  const char* name;
  double (*at)(double done);
  double noise;
  CurveSpec::Tail tail = CurveSpec::Tail::kNormal;
  std::vector<uint64_t> least;  // percent found at 5, 8, 10, 15, 20, 30, 60, 200, 400
};
constexpr size_t kEvaluations[] = {5, 8, 10, 15, 20, 30, 60, 200, 400};

// Returns the number found at the end of the run, and at any earlier check.
std::pair<uint64_t, uint64_t> Overfits(const Evaluation& e, size_t count, bool training_falls) {
  uint64_t found = 0, ever = 0;
  for (uint64_t seed = 0; seed < Seeds(); ++seed) {
    CurveSpec spec;
    spec.points = count;
    spec.begin = spec.floor = 1;
    spec.noise = e.noise;
    spec.tail = e.tail;
    spec.seed = 9'000'000 + seed;
    const std::vector<double> noise = Curve(spec);
    OverfitWatch watch;
    bool once = false, now = false, twice = false;
    for (size_t i = 0; i < count; ++i) {
      const double done = static_cast<double>(i) / static_cast<double>(count - 1);
      const double training = training_falls ? 2 - done : 1 + done;
      watch.Take(static_cast<int64_t>(100 * i), e.at(done) * noise[i], training);
      if (!watch.IsDue() && i + 1 < count) continue;
      now = watch.Look().overfits();
      twice |= now && once;
      once = now;
    }
    found += now;
    ever += twice || now;
  }
  return {found, ever};
}

double Tripled(double done) { return 0.4 + 0.9 * done; }
double Valley(double done) {
  return done < 0.3 ? 1 + 0.5 * (0.3 - done) / 0.3 : 1 + 0.6 * (done - 0.3) / 0.7;
}
double Jumped(double done) { return done < 0.5 ? 0.92 + 0.4 * (0.5 - done) : 1.84; }
double Flat(double /*done*/) { return 1; }
double Settles(double done) { return 1 + 0.5 * std::max(0.0, 0.3 - done) / 0.3; }
double Falls(double done) { return 0.7 + 0.8 * std::exp(-3 * done); }

TEST(ShortRuns, EvaluationsThatOverfitAreFound) {
  const Evaluation evaluations[] = {
      {"0.4 to 1.3, noise 0.5 %", Tripled, 0.005, {}, {95, 100, 100, 100, 100, 100, 100, 100, 100}},
      {"0.4 to 1.3, noise 3 %", Tripled, 0.03, {}, {90, 95, 95, 95, 95, 95, 100, 100, 100}},
      {"0.4 to 1.3, noise 10 %", Tripled, 0.1, {}, {15, 30, 30, 45, 60, 85, 95, 100, 100}},
      {"a valley, noise 3 %", Valley, 0.03, {}, {0, 40, 55, 65, 80, 90, 95, 95, 95}},
      {"a jump to twice, noise 3 %", Jumped, 0.03, {}, {0, 0, 0, 90, 95, 95, 95, 95, 95}},
  };
  for (const Evaluation& e : evaluations) {
    for (size_t i = 0; i < std::size(kEvaluations); ++i) {
      const auto [found, ever] = Overfits(e, kEvaluations[i], true);
      std::printf("%-24s %3zu evaluations: of %llu found %llu\n", e.name, kEvaluations[i],
                  static_cast<unsigned long long>(Seeds()), static_cast<unsigned long long>(found));
      EXPECT_GE(100 * found, e.least[i] * Seeds()) << e.name << " " << kEvaluations[i];
      EXPECT_EQ(Overfits(e, kEvaluations[i], false).first, 0u) << "training rises: " << e.name;
    }
  }
}

TEST(ShortRuns, EvaluationsThatStandOrFallAreLeftAlone) {
  using Tail = CurveSpec::Tail;
  const Evaluation evaluations[] = {
      {"flat, noise 0.5 %", Flat, 0.005, Tail::kNormal, {}},
      {"flat, noise 3 %", Flat, 0.03, Tail::kNormal, {}},
      {"flat, noise 10 %", Flat, 0.1, Tail::kNormal, {}},
      {"flat, noise 3 %, tails", Flat, 0.03, Tail::kStudent5, {}},
      {"falls and stands, 3 %", Settles, 0.03, Tail::kNormal, {}},
      {"falls and stands, 10 %", Settles, 0.1, Tail::kNormal, {}},
      {"falls, noise 3 %", Falls, 0.03, Tail::kNormal, {}},
      {"falls, noise 10 %", Falls, 0.1, Tail::kNormal, {}},
  };
  uint64_t all = 0, runs = 0;
  for (const Evaluation& e : evaluations) {
    for (const size_t count : kEvaluations) {
      const auto [found, ever] = Overfits(e, count, true);
      std::printf("%-24s %3zu evaluations: of %llu found %llu, at any look %llu\n", e.name, count,
                  static_cast<unsigned long long>(Seeds()), static_cast<unsigned long long>(found),
                  static_cast<unsigned long long>(ever));
      all += found;
      runs += Seeds();
    }
  }
  EXPECT_LE(all * 500, runs) << "one in 500 at most";
}

TEST(ShortRuns, PoisonIsNoEvaluation) {
  OverfitWatch watch;
  for (int i = 0; i < 20; ++i) watch.Take(i, i % 2 == 0 ? NAN : INFINITY, 1);
  EXPECT_FALSE(watch.Look().known);
  EXPECT_FALSE(watch.Look().overfits());
}

}  // namespace
}  // namespace plumbline::analysis::testing
