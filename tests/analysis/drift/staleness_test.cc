// Tests the three-point split and the jumps within sequences: against direct sums, level and power
// by simulation, non-finite values, too little data.
#include "analysis/drift/staleness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "analysis/drift/run.h"
#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::analysis {
namespace {

using rules::testing::RolloutSimulator;
using rules::testing::RolloutSpec;
using By = StalenessMark::By;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool Long() { return std::getenv("PLUMB_LONG") != nullptr; }

RolloutSpec Stale(double drift) {
  RolloutSpec spec;
  spec.steps = 12;
  spec.lag = 8;
  spec.drift = drift;
  spec.behaviour = true;
  return spec;
}

RolloutSpec InFlight(int lag, int updates, double drift) {
  RolloutSpec spec;
  spec.steps = 12;
  spec.lag = lag;
  spec.in_flight = updates;
  spec.drift = drift;
  return spec;
}

template <typename Change>
DriftSite Simulate(const RolloutSpec& spec, const Change& change) {
  RolloutSimulator simulator(spec);
  DriftSite site("policy", "logprobs");
  for (int step = 0; step < spec.steps; ++step) {
    site.BeginStep(0, step);
    for (RolloutSequence& sequence : simulator.Step(step)) {
      change(sequence);
      site.Take(sequence);
    }
    site.EndStep();
  }
  site.End();
  return site;
}
DriftSite Simulate(const RolloutSpec& spec) {
  return Simulate(spec, [](RolloutSequence&) {});
}

TEST(StalenessSplit, IsTheMeanOfSquaresByDefinition) {
  std::mt19937_64 engine(5);
  std::normal_distribution<double> normal;
  StalenessSplit split;
  double n = 0, n0 = 0, ss = 0, mm = 0, sm = 0, own = 0;
  for (int sequence = 0; sequence < 40; ++sequence) {
    for (int i = 0; i < 10 + sequence % 3; ++i) {
      const bool fresh = sequence % 4 == 0;
      const double moved = (fresh ? 0.01 : 0.1) * normal(engine), apart = 0.03 * normal(engine);
      split.Add(fresh, moved, apart);
      (fresh ? n0 : n) += 1;
      (fresh ? own : ss) += moved * moved;
      mm += fresh ? 0 : apart * apart;
      sm += fresh ? 0 : moved * apart;
    }
    split.EndSequence();
  }
  const SplitFit fit = split.Fit();
  ASSERT_TRUE(fit.judged);
  EXPECT_NEAR(fit.own, own / n0 / 2, 1e-15);
  EXPECT_NEAR(fit.staleness, ss / n / 2 - own / n0 / 2, 1e-12);
  EXPECT_NEAR(fit.numerics, mm / n / 2, 1e-15);
  EXPECT_NEAR(fit.cross, sm / n, 1e-15);
  EXPECT_GT(fit.staleness_error, 0);
}

// Tests that 99 % of the intervals contain the true value, with and without correlation between the
// tokens of a sequence.
TEST(StalenessSplit, IntervalsCoverTheTruth) {
  std::mt19937_64 engine(6);
  std::normal_distribution<double> normal;
  const int runs = Long() ? 20000 : 2000;
  int outside[3] = {};
  for (int run = 0; run < runs; ++run) {
    StalenessSplit split;
    for (int sequence = 0; sequence < 60; ++sequence) {
      const double size = std::exp(0.5 * normal(engine) - 0.25);  // mean square 1
      for (int i = 0; i < 16; ++i)
        split.Add(sequence % 3 == 0, 0.1 * size * normal(engine), 0.1 * size * normal(engine));
      split.EndSequence();
    }
    const SplitFit fit = split.Fit();
    outside[0] += std::fabs(fit.staleness - 0) > 2.576 * fit.staleness_error;
    outside[1] += std::fabs(fit.numerics - 0.005) > 2.576 * fit.numerics_error;
    outside[2] += fit.excess > 2.576 * fit.excess_error;
  }
  std::printf("outside of %d: staleness %d, numerics %d, above %d\n", runs, outside[0], outside[1],
              outside[2]);
  EXPECT_LE(outside[0], 0.03 * runs);
  EXPECT_LE(outside[1], 0.08 * runs);  // skewed: few sequences contribute most of the squares
  EXPECT_LE(outside[2], 0.005 * runs);
}

TEST(Staleness, TheThirdPassSplitsWhatWasPlanted) {
  for (const int seed : {1, 2, 3}) {
    RolloutSpec spec = Stale(0.03);
    spec.seed = seed;
    const DriftSite site = Simulate(spec);
    const StalenessMark mark = FindStaleness(site.statistics);
    EXPECT_EQ(mark.by, By::kSplit);
    EXPECT_TRUE(mark.found);
    // Independent of the engine noise, which is common to the passes of both versions.
    EXPECT_NEAR(mark.split.numerics, mark.lag.at_zero, 4 * mark.split.numerics_error + 2e-4);
    EXPECT_NEAR(mark.split.staleness, mark.lag.stale_part, 0.5 * mark.split.staleness);
    EXPECT_EQ(site.Cause().id, "staleness");
    EXPECT_EQ(mark.split.own, 0);
  }
}

TEST(Staleness, TheThirdPassNearMiss) {
  const StalenessMark mark = FindStaleness(Simulate(Stale(0.002)).statistics);
  EXPECT_EQ(mark.by, By::kSplit);
  EXPECT_FALSE(mark.found);
  EXPECT_GT(mark.split.staleness, 3 * mark.split.staleness_error);  // present, but small
}

// Tests that the third pass is sufficient without versions and without tokens of lag 0.
TEST(Staleness, TheThirdPassNeedsNoLag) {
  RolloutSpec spec = Stale(0.03);
  spec.versions_recorded = false;
  StalenessMark mark = FindStaleness(Simulate(spec).statistics);
  EXPECT_EQ(mark.by, By::kSplit);
  EXPECT_TRUE(mark.found);
  spec.drift = 0.002;
  mark = FindStaleness(Simulate(spec).statistics);
  EXPECT_EQ(mark.by, By::kSplit);
  EXPECT_FALSE(mark.found);
}

TEST(Staleness, PoisonTouchesNothingElse) {
  const RolloutSpec spec = Stale(0.03);
  int at = 0;
  const DriftSite poisoned = Simulate(spec, [&](RolloutSequence& s) {
    for (RolloutToken& token : s.tokens) {
      const int kind = at++ % 7;
      if (kind == 0) token.behaviour = kNaN;
      if (kind == 1) token.behaviour = -std::numeric_limits<double>::infinity();
      if (kind == 2) token.train = kNaN;
      if (kind == 3) token.rollout = kNaN;
    }
  });
  const SplitFit clean = Simulate(spec).statistics.split.Fit();
  const SplitFit fit = poisoned.statistics.split.Fit();
  ASSERT_TRUE(fit.judged);
  EXPECT_NEAR(fit.staleness, clean.staleness, 5 * fit.staleness_error);
  EXPECT_NEAR(fit.numerics, clean.numerics, 5 * fit.numerics_error);
  const DriftSite all = Simulate(spec, [&](RolloutSequence& s) {
    for (RolloutToken& token : s.tokens) token.behaviour = kNaN;
  });
  EXPECT_EQ(FindStaleness(all.statistics).by, By::kLag);
  EXPECT_TRUE(FindStaleness(all.statistics).found);
}

TEST(Staleness, TooFewSequencesAreNotJudged) {
  RolloutSpec spec = Stale(0.03);
  spec.steps = 1;
  spec.sequences = 7;
  spec.versions_recorded = false;
  EXPECT_EQ(FindStaleness(Simulate(spec).statistics).by, By::kNothing);
  spec = InFlight(8, 4, 0.03);
  spec.steps = 1;
  spec.sequences = 7;
  EXPECT_EQ(FindStaleness(Simulate(spec).statistics).by, By::kNothing);
}

// Tests that the trainer's second pass at lag 0 is its noise floor: its difference from itself is
// not staleness. If that is most of the drift, it is the cause.
TEST(Staleness, TheTrainersOwnNoiseIsTakenOffAndNamed) {
  RolloutSpec spec = Stale(0.002);
  spec.sin = "batch-variance";
  spec.size = 0.1;
  const DriftSite site = Simulate(spec);
  const StalenessMark mark = FindStaleness(site.statistics);
  EXPECT_FALSE(mark.found) << mark.split.staleness << " " << mark.split.own;
  EXPECT_GT(mark.split.own, 1e-3);
  EXPECT_EQ(site.Cause().id, "batch-variance");
}

// ---- updates in flight ----

TEST(VersionJumps, FallIsBeforeLessAfter) {
  VersionJumps jumps;
  for (int sequence = 0; sequence < 10; ++sequence) {
    for (int i = 0; i < 40; ++i) jumps.Add(i < 20 ? 4 : 1, i < 20 ? 0.2 : -0.1);
    jumps.EndSequence();
  }
  const JumpFit fit = jumps.Fit();
  ASSERT_TRUE(fit.judged);
  EXPECT_EQ(fit.boundaries, 10);
  EXPECT_NEAR(fit.before, 0.02, 1e-15);
  EXPECT_NEAR(fit.after, 0.005, 1e-15);
  EXPECT_NEAR(fit.fall, 0.015, 1e-15);
  EXPECT_NEAR(fit.fall_error, 0, 1e-9);
  EXPECT_EQ(fit.lag_before, 4);
  EXPECT_EQ(fit.lag_after, 1);
}

TEST(VersionJumps, ShortRunsAndOlderWeightsAreNoBoundary) {
  VersionJumps jumps;
  for (int sequence = 0; sequence < 10; ++sequence) {
    for (int i = 0; i < 40; ++i) jumps.Add(i < 3 ? 4 : 1, 0.1);  // 3 tokens before
    jumps.EndSequence();
    for (int i = 0; i < 40; ++i) jumps.Add(i < 20 ? 1 : 4, 0.1);  // becomes older
    jumps.EndSequence();
  }
  EXPECT_FALSE(jumps.Fit().judged);
}

// Tests runs without tokens of lag 0: only changes within sequences separate age from numerics.
TEST(Staleness, UpdatesInFlightSpeakWithoutFreshTokens) {
  const StalenessMark found = FindStaleness(Simulate(InFlight(9, 8, 0.03)).statistics);
  EXPECT_EQ(found.by, By::kJumps);
  EXPECT_TRUE(found.found);
  const StalenessMark none = FindStaleness(Simulate(InFlight(9, 8, 0.002)).statistics);
  EXPECT_EQ(none.by, By::kJumps);
  EXPECT_FALSE(none.found);
}

// Tests a fall of drift with position only, and a fall older than the window: no finding.
TEST(Staleness, DriftThatFallsSlowlyIsNoJump) {
  const DriftSite site = Simulate(InFlight(9, 8, 0), [](RolloutSequence& s) {
    for (RolloutToken& token : s.tokens) {
      const double larger = 1 + 2 * std::exp(-0.05 * static_cast<double>(token.position));
      token.train = token.rollout + larger * (token.train - token.rollout);
    }
  });
  EXPECT_FALSE(FindStaleness(site.statistics).found);
}

// Measures how often each evidence type finds the change of one version of a given size, and how
// often it is incorrect if nothing is stale.
TEST(Staleness, LevelAndPower) {
  const int runs = Long() ? 400 : 20;
  for (const double drift : {0.0, 0.01, 0.02, 0.03}) {
    int split = 0, jumps = 0;
    for (int run = 0; run < runs; ++run) {
      RolloutSpec spec = Stale(drift);
      spec.steps = 4;
      spec.contexts = 64;
      spec.seed = 300 + run;
      split += FindStaleness(Simulate(spec).statistics).found;
      spec = InFlight(8, 8, drift);
      spec.steps = 4;
      spec.contexts = 64;
      spec.seed = 300 + run;
      jumps += FindStaleness(Simulate(spec).statistics).found;
    }
    std::printf("change of %.2f a version: third pass %d, in flight %d of %d\n", drift, split,
                jumps, runs);
    EXPECT_LE(split + jumps, drift == 0 ? 0 : 2 * runs);
    EXPECT_GE(std::min(split, jumps), drift >= 0.03 ? 0.95 * runs : 0);
  }
}

}  // namespace
}  // namespace plumbline::analysis
