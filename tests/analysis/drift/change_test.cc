// Measures false alarm rate and power for jumps and growth over the steps of a run by simulation.
#include "analysis/drift/change.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "analysis/drift/episode.h"

namespace plumbline::analysis {
namespace {

bool Long() { return std::getenv("PLUMB_LONG") != nullptr; }

// Returns steps whose mean square is scale(step) times a chi-square over `tokens` heavy-tailed
// squares.
std::vector<DriftPoint> Series(std::mt19937_64& engine, int steps,
                               const std::function<double(int)>& scale, double spread = 0.25) {
  std::lognormal_distribution<double> noise(0, spread);
  std::vector<DriftPoint> points;
  for (int t = 0; t < steps; ++t) {
    const double square = 6e-4 * scale(t) * noise(engine);
    points.push_back({.step = t,
                      .tokens = 1000,
                      .tail_share = std::min(1.0, square / 4),
                      .bounded_square = std::min(0.25, square),
                      .mean_square = square});
  }
  return points;
}

const auto kFlat = [](int) { return 1.0; };

TEST(StepChange, SilentOnHealthySeriesAndOnEvenGrowth) {
  std::mt19937_64 engine(21);
  const int runs = Long() ? 20000 : 2000;
  int found = 0;
  for (int run = 0; run < runs; ++run) {
    const int steps = 16 + run % 100;
    found += FindStepChange(Series(engine, steps, kFlat, 0.1 + 0.01 * (run % 90))).found;
    found += FindStepChange(Series(engine, steps, [](int t) { return std::exp(0.05 * t); })).found;
  }
  EXPECT_EQ(found, 0);
}

TEST(DriftEpisode, SilentOnHealthySeriesAndOnEvenGrowth) {
  std::mt19937_64 engine(31);
  const int runs = Long() ? 20000 : 2000;
  int found = 0;
  for (int run = 0; run < runs; ++run) {
    const int steps = 16 + run % 100;
    found += FindEpisode(Series(engine, steps, kFlat, 0.1 + 0.01 * (run % 90))).found;
    found += FindEpisode(Series(engine, steps, [](int t) { return std::exp(0.05 * t); })).found;
  }
  EXPECT_EQ(found, 0);
}

TEST(DriftEpisode, FindsAStretchWhereItIs) {
  std::mt19937_64 engine(32);
  int found = 0;
  for (int run = 0; run < 300; ++run) {
    const DriftEpisode episode =
        FindEpisode(Series(engine, 64, [](int t) { return t >= 20 && t < 40 ? 6.0 : 1.0; }));
    found += episode.found && std::abs(static_cast<int>(episode.first) - 20) <= 1 &&
             std::abs(static_cast<int>(episode.last) - 39) <= 1;
  }
  EXPECT_GE(found, 295);
}

TEST(StepChange, FindsAJumpWhereItIs) {
  std::mt19937_64 engine(22);
  int found = 0;
  for (int run = 0; run < 300; ++run) {
    const StepChange jump =
        FindStepChange(Series(engine, 40, [](int t) { return t < 17 ? 1.0 : 5.0; }));
    found += jump.found && std::abs(static_cast<int>(jump.step) - 17) <= 1;
  }
  EXPECT_GE(found, 295);
}

// Tests that a jump with fewer than 8 later steps is not reported yet, in particular not at the
// step before it; with 8 steps, it is reported at the correct step.
TEST(StepChange, WaitsForAJumpNearTheEnd) {
  std::mt19937_64 engine(29);
  for (int run = 0; run < 200; ++run) {
    const auto jumps = [](int t) { return t < 30 ? 1.0 : 9.0; };
    const std::vector<DriftPoint> points = Series(engine, 38, jumps, 0.2);
    for (size_t n = 34; n < 38; ++n) {
      const StepChange early = FindStepChange(std::span(points).first(n));
      EXPECT_FALSE(early.found) << n << " steps, reported at " << early.step;
      EXPECT_TRUE(early.at_edge);
    }
    const StepChange jump = FindStepChange(points);
    EXPECT_TRUE(jump.found);
    EXPECT_EQ(jump.step, 30);
    EXPECT_LE(jump.step_low, 30);
    EXPECT_GE(jump.step_high, 30);
  }
}

TEST(StepChange, NearMisses) {
  std::mt19937_64 engine(23);
  // A fall, a jump below ln 2, and a jump with 7 later steps.
  EXPECT_FALSE(FindStepChange(Series(
                                  engine, 40, [](int t) { return t < 20 ? 5.0 : 1.0; }, .05))
                   .found);
  EXPECT_FALSE(FindStepChange(Series(
                                  engine, 40, [](int t) { return t < 20 ? 1.0 : 1.8; }, .05))
                   .found);
  EXPECT_FALSE(FindStepChange(Series(engine, 15, kFlat)).judged);
  EXPECT_FALSE(FindStepChange({}).judged);
  std::vector<DriftPoint> zeros = Series(engine, 40, kFlat);
  for (DriftPoint& p : zeros) p.mean_square = 0;
  EXPECT_FALSE(FindStepChange(zeros).judged);
}

// Checks that the mean run length is at least 200 at a threshold of 200: P(alarm within n) <= n /
// 200 for independent runs.
void ExpectRunLength(const std::function<Growth(std::span<const DriftPoint>, int)>& watch) {
  std::mt19937_64 engine(24);
  const int runs = Long() ? 20000 : 3000;
  constexpr int kSteps = 20;
  int alarms = 0;
  for (int run = 0; run < runs; ++run)
    alarms += watch(Series(engine, kSteps, kFlat, 0.8), run).alarmed;
  const double allowed = 0.1 * runs;
  EXPECT_LT(alarms, allowed + 4 * std::sqrt(allowed));
}

TEST(Growth, RunLengthOfRanks) {
  ExpectRunLength(
      [](auto points, int run) { return WatchRanks(points, std::to_string(run), 200); });
}

TEST(Growth, RunLengthOfCeilings) {
  const double mean = 6e-4 * std::exp(0.32);  // of the lognormal distribution
  ExpectRunLength([&](auto points, int) { return WatchCeiling(points, mean / 4, mean, 200); });
}

TEST(Growth, RanksOfEqualStepsAreUniform) {
  int alarms = 0;
  for (int run = 0; run < 500; ++run) {
    std::vector<DriftPoint> zeros(100);
    for (int t = 0; t < 100; ++t) zeros[static_cast<size_t>(t)].step = t;
    alarms += WatchRanks(zeros, std::to_string(run), 1e4).alarmed;
  }
  EXPECT_LE(alarms, 16);  // 1 % of 500 expected at most, plus 5 standard deviations
}

TEST(Growth, PowerOfRanks) {
  std::mt19937_64 engine(25);
  int found = 0;
  for (int run = 0; run < 200; ++run) {
    const Growth growth = WatchRanks(
        Series(engine, 80, [](int t) { return t < 30 ? 1 : std::exp(0.1 * (t - 30)); }), "x", 1e6);
    found += growth.alarmed && growth.since_step > 5 && growth.after > 1.25 * growth.before;
  }
  EXPECT_GE(found, 190);
}

TEST(Growth, PowerAndNearMissOfCeilings) {
  std::mt19937_64 engine(26);
  const Ceilings ceilings = Calibrate(Series(engine, 200, kFlat));
  int found = 0, wrong = 0;
  for (int run = 0; run < 200; ++run) {
    const auto grown = Series(engine, 200, [](int t) { return t < 50 ? 1.0 : 2.0; });
    found += WatchCeiling(grown, ceilings.tail, ceilings.square, 1e6).alarmed;
    // A tenth more is below a ceiling that is a quarter above.
    const auto near = Series(engine, 200, [](int) { return 1.1; });
    wrong += WatchCeiling(near, ceilings.tail, ceilings.square, 1e6).alarmed;
  }
  EXPECT_GE(found, 195);
  EXPECT_EQ(wrong, 0);
  EXPECT_FALSE(WatchCeiling(Series(engine, 50, kFlat), 0, 0, 1e6).alarmed);
}

// ---- growth that restarts undo ----

std::vector<DriftPoint> Restarted(std::vector<DriftPoint> points, int every) {
  for (DriftPoint& p : points) p.attempt = static_cast<uint32_t>(p.step / every);
  return points;
}

TEST(Sawtooth, FindsGrowthThatRestartsUndo) {
  std::mt19937_64 engine(61);
  int found = 0;
  for (int run = 0; run < 300; ++run) {
    const int every = 10 + run % 11;
    const auto points =
        Series(engine, 4 * every, [&](int t) { return std::exp(0.2 * (t % every)); });
    const Sawtooth saw = FindSawtooth(Restarted(points, every));
    EXPECT_EQ(saw.restarts, 3u);
    found += saw.found && std::fabs(saw.slope - 0.2) < 0.08;
  }
  EXPECT_GE(found, 290);
}

// Tests restarts without effect, growth that restarts do not undo, a jump, a fall within attempts:
// no finding.
TEST(Sawtooth, SilentElsewhere) {
  std::mt19937_64 engine(62);
  const int runs = Long() ? 20000 : 2000;
  int found = 0;
  for (int run = 0; run < runs; ++run) {
    const int every = 4 + run % 17, steps = 2 * every + 16;
    const double spread = 0.1 + 0.01 * (run % 90);
    const auto of = [&](const std::function<double(int)>& scale) {
      return FindSawtooth(Restarted(Series(engine, steps, scale, spread), every)).found;
    };
    found += of(kFlat);
    found += of([](int t) { return std::exp(0.05 * t); });
    found += of([&](int t) { return t < steps / 2 ? 1.0 : 8.0; });
    found += of([&](int t) { return std::exp(-0.2 * (t % every)); });
  }
  EXPECT_EQ(found, 0);
}

// Tests restarts that undo most of the growth, in a run that still grows: a line fits better.
TEST(Sawtooth, AttemptsThatEachBeginHigherAreALine) {
  std::mt19937_64 engine(64);
  int falls = 0;
  for (int run = 0; run < 100; ++run) {
    const auto scale = [](int t) { return std::exp(0.1 * (t - 17 * (t / 20))); };
    const Sawtooth saw = FindSawtooth(Restarted(Series(engine, 400, scale, 0.1), 20));
    EXPECT_TRUE(saw.judged);
    EXPECT_FALSE(saw.found) << saw.residual_share;
    falls += saw.smallest_fall > 0 && saw.slope > 6 * saw.standard_error;
  }
  EXPECT_GE(falls, 50);
}

// Tests an engine that restarts independently of the trainer: no attempt is recorded, but the falls
// are visible.
TEST(Sawtooth, FindsFallsWhereNoRestartIsRecorded) {
  std::mt19937_64 engine(64);
  const auto grows = [](int t) { return std::exp(0.2 * (t % 10)); };
  int found = 0, three = 0;
  for (int run = 0; run < 100; ++run) {
    const Sawtooth tooth = FindSawtooth(Series(engine, 40, grows, 0.15));
    found += tooth.found && !tooth.by_attempts;
    three += tooth.restarts == 3;
  }
  EXPECT_GE(found, 95);
  EXPECT_GE(three, 95);
  // Steps up and down, one falling step, steady growth, a jump.
  const int runs = Long() ? 20000 : 2000;
  int loud = 0;
  for (int run = 0; run < runs; ++run) {
    const int steps = 16 + run % 80;
    loud += FindSawtooth(Series(engine, steps, kFlat, 0.1 + 0.01 * (run % 90))).found;
    loud += FindSawtooth(Series(engine, steps, [](int t) { return std::exp(0.05 * t); })).found;
    loud += FindSawtooth(Series(engine, steps, [](int t) { return t < 9 ? 5.0 : 1.0; })).found;
    loud += FindSawtooth(Series(engine, steps, [](int t) { return t < 12 ? 1.0 : 6.0; })).found;
    loud += FindSawtooth(Series(engine, steps, [](int t) { return t % 8 < 4 ? 1.0 : 4.0; })).found;
  }
  EXPECT_EQ(loud, 0);
}

TEST(Sawtooth, NotJudgedWithoutRestartsOrWithTooFewSteps) {
  std::mt19937_64 engine(63);
  const auto grows = [](int t) { return std::exp(0.2 * (t % 10)); };
  EXPECT_FALSE(FindSawtooth(Series(engine, 20, grows)).judged);  // one fall may be a repair
  EXPECT_FALSE(FindSawtooth(Restarted(Series(engine, 12, grows), 6)).judged);
  EXPECT_FALSE(FindSawtooth(Restarted(Series(engine, 22, grows), 10)).judged);  // the last has 2
  EXPECT_FALSE(FindSawtooth({}).judged);
  std::vector<DriftPoint> same = Restarted(Series(engine, 40, grows), 10);
  for (DriftPoint& p : same) p.mean_square = 0;
  EXPECT_FALSE(FindSawtooth(same).judged);
}

}  // namespace
}  // namespace plumbline::analysis
