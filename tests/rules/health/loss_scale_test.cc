// Tests health/loss-scale on dynamic scalers over simulated gradients: healthy ones are not
// reported; those whose gradients outgrow fp16 are found.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/rules/support/spec_values.h"
#include "tests/rules/support/verdicts.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using testing::Draw;
using testing::Verdicts;
using testing::VerdictsOf;

constexpr char kRule[] = "health/loss-scale";

// The injector: a dynamic scaler, and the largest gradient of each step before it is scaled.
struct ScaledRun {
  int steps = 4000;
  double initial = 65536;
  int growth = 2000;      // steps without overflow after which it doubles
  int hysteresis = 1;     // consecutive steps with overflow that reduce the scale
  double gradient = 0.5;  // median of the largest gradient
  double spread = 0.3;    // standard deviation of its ln
  double correlation = 0.9;
  bool heavy = false;   // one step in 200 is 4 times as large
  int storm_from = -1;  // from here on the gradient doubles every `storm_every` steps
  int storm_every = 25;
  int resume = -1;            // the scaler restarts here, in a new attempt
  int every = 1;              // logged in each n-th step
  bool skipped_flag = false;  // reported as a separate series, without a scale
  uint64_t seed = 1;

  std::vector<v1::Batch> Batches() const {
    Draw draw(seed);
    std::vector<v1::Batch> batches = {test::BatchOf(test::SourceOf("run"))};
    double scale = initial, noise = 0;
    int clean = 0, overflows = 0;
    for (int step = 0; step < steps; ++step) {
      if (step == resume) {
        test::AddProgress(&batches.back(), step - 1);
        batches.push_back(test::BatchOf(test::SourceOf("run", 0, 1, 1)));
        scale = initial;
        clean = overflows = 0;
      }
      noise = correlation * noise + std::sqrt(1 - correlation * correlation) * draw.Normal();
      double largest = gradient * std::exp(spread * noise);
      if (heavy && draw.Uniform() < 0.005) largest *= 4;
      if (storm_from >= 0 && step >= storm_from)
        largest *= std::exp2((step - storm_from) / storm_every + 1);
      const bool skipped = largest * scale > 65504;
      if (step % every == 0) {
        if (skipped_flag) {
          test::AddScalar(&batches.back(), "skipped", step, skipped ? 1 : 0);
        } else {
          test::AddScalar(&batches.back(), "loss_scale", step, scale);
        }
      }
      if (!skipped) {
        overflows = 0;
        if (++clean % growth == 0) scale *= 2;
        continue;
      }
      clean = 0;
      if (++overflows >= hysteresis) scale /= 2;
    }
    return batches;
  }
};

ScaledRun Healthy(uint64_t seed) {
  Draw draw(seed * 7919);
  ScaledRun run{.seed = seed};
  if (seed % 2 == 0) run.initial = 4294967296.0;
  if (seed % 2 == 0) run.hysteresis = 2;
  run.growth = seed % 3 == 0 ? 1000 : 2000;
  run.gradient = std::exp2(-12 + 14 * draw.Uniform());
  run.spread = 0.2 + 0.5 * draw.Uniform();
  run.correlation = draw.Uniform() * 0.98;
  run.heavy = seed % 5 == 0;
  if (seed % 4 == 0) run.resume = 500 + static_cast<int>(2500 * draw.Uniform());
  return run;
}

TEST(LossScale, NoFalseAlarmOnHealthyScalers) {
  int alarms = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const int found = testing::Findings(VerdictsOf(kRule, Healthy(seed).Batches()), kRule);
    alarms += found;
    EXPECT_EQ(found, 0) << seed;
  }
  RecordProperty("alarms", alarms);
  EXPECT_EQ(alarms, 0);
}

TEST(LossScale, StormsAreFound) {
  int found = 0;
  constexpr int kRuns = 100;
  for (uint64_t seed = 1; seed <= kRuns; ++seed) {
    ScaledRun run = Healthy(seed);
    run.resume = -1;
    run.storm_from = 1500;
    const Verdicts verdicts = VerdictsOf(kRule, run.Batches());
    if (testing::Findings(verdicts, kRule) == 0) continue;
    ++found;
    EXPECT_EQ(verdicts[0].finding().level(), v1::LEVEL_WARNING);
    EXPECT_EQ(verdicts[0].finding().cause().id(), "overflow-storm");
    EXPECT_GE(verdicts[0].site().step_last(), run.storm_from);
  }
  EXPECT_EQ(found, kRuns);
}

// From the first step on: the start-up hides it for 100 points only.
TEST(LossScale, AScalerThatNeverSettles) {
  for (const int every : {1, 5}) {
    const ScaledRun run{
        .steps = 300 * every, .storm_from = 0, .storm_every = 10 * every, .every = every};
    const Verdicts verdicts = VerdictsOf(kRule, run.Batches());
    ASSERT_EQ(testing::Findings(verdicts, kRule), 1);
    EXPECT_LT(verdicts[0].site().step_last(), 140 * every);
  }
}

// Flags of healthy scalers, which skip up to twenty consecutive steps while they search for their
// scale, also after a resume.
TEST(LossScale, HealthyFlagsAreNoStorm) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    ScaledRun run = Healthy(seed);
    run.skipped_flag = true;
    run.steps = 1000;
    if (run.resume >= 0) run.resume %= 1000;
    EXPECT_EQ(testing::Findings(VerdictsOf(kRule, run.Batches()), kRule), 0) << seed;
  }
}

// Every step is skipped from one on: found in the tenth such row, however short the run.
TEST(LossScale, AStormOfSkippedStepsInAShortRun) {
  const auto findings = [](int steps, int from, double value) {
    v1::Batch batch = test::BatchOf(test::SourceOf("run"));
    for (int step = 0; step < steps; ++step)
      test::AddScalar(&batch, "number of skipped iterations", step, step >= from ? value : 0);
    return testing::Findings(VerdictsOf(kRule, {batch}), kRule);
  };
  for (const int steps : {20, 60, 200}) {
    EXPECT_GT(findings(steps, steps - 10, 1), 0) << steps;
    EXPECT_EQ(findings(steps, steps - 9, 1), 0) << steps;
    EXPECT_EQ(findings(steps, 3, std::nan("")), 0) << steps;
  }
  EXPECT_EQ(findings(10, 0, 1), 0);
  EXPECT_EQ(findings(49, 0, 1), 0);
  EXPECT_GT(findings(60, 0, 1), 0);
}

// Flags of skipped steps: 3 % is not reported, 10 % is.
TEST(LossScale, ShareOfSkippedSteps) {
  const auto findings = [](double share, uint64_t seed) {
    Draw draw(seed);
    v1::Batch batch = test::BatchOf(test::SourceOf("run"));
    for (int step = 0; step < 3000; ++step)
      test::AddScalar(&batch, "train/skipped", step, draw.Uniform() < share ? 1 : 0);
    return testing::Findings(VerdictsOf(kRule, {batch}), kRule);
  };
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    EXPECT_EQ(findings(0.03, seed), 0) << seed;
    EXPECT_EQ(findings(0.1, seed), 1) << seed;
  }
}

TEST(LossScale, PoisonNeitherAccusesNorBlinds) {
  for (const double poison : {std::nan(""), HUGE_VAL, -1.0, 0.0}) {
    for (const bool storm : {false, true}) {
      v1::Batch batch = test::BatchOf(test::SourceOf("run"));
      for (int step = 0; step < 400; ++step) {
        const double scale = storm && step >= 150 ? std::exp2(16 - (step - 130) / 20) : 65536;
        test::AddScalar(&batch, "loss_scale", step, step % 3 == 1 ? poison : scale);
      }
      EXPECT_EQ(testing::Findings(VerdictsOf(kRule, {batch}), kRule), storm ? 1 : 0) << poison;
    }
  }
}

}  // namespace
}  // namespace plumbline::rules
