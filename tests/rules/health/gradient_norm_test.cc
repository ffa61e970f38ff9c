// Tests health/gradient-spike and gradient-vanish on simulated norms: healthy ones are not
// reported; spikes, explosions and vanishing ones are found at their first step.
#include <gtest/gtest.h>

#include <algorithm>
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
using testing::VerdictsOn;

constexpr char kSpike[] = "health/gradient-spike";
constexpr char kVanish[] = "health/gradient-vanish";

// The injector: a norm that falls at the start and then keeps its level, with noise.
struct NormRun {
  int points = 2000;
  int every = 1;
  double level = 0.5;
  double fall = 10;  // from this many times the level
  double noise = 0.2;
  double correlation = 0.3;
  double digits = 0;          // number of decimals to which it is rounded; 0 if not
  double clip = HUGE_VAL;     // limit; the norm is logged after the clip
  double trend = 0;           // of ln, over the run
  int from = -1, length = 1;  // planted: times `factor`
  double factor = 1;
  bool ramps = false;  // the factor grows by itself with each point
  uint64_t seed = 1;

  v1::Batch Batch() const {
    Draw draw(seed);
    v1::Batch batch = test::BatchOf(test::SourceOf("run"));
    double z = 0;
    for (int i = 0; i < points; ++i) {
      z = correlation * z + std::sqrt(1 - correlation * correlation) * draw.Normal();
      double norm = level * (1 + (fall - 1) * std::exp(-i / 60.0)) * std::exp(noise * z) *
                    std::exp(trend * i / points);
      if (from >= 0 && i >= from && i < from + length)
        norm *= ramps ? std::pow(factor, i - from + 1) : factor;
      norm = std::min(norm, clip);
      if (digits > 0) norm = std::round(norm * std::pow(10, digits)) / std::pow(10, digits);
      test::AddScalar(&batch, "grad_norm", i * every, norm);
    }
    return batch;
  }
};

NormRun Healthy(uint64_t seed) {
  Draw draw(seed * 15485863);
  NormRun run{.seed = seed};
  run.every = seed % 4 == 0 ? 10 : 1;
  run.level = std::pow(10.0, -1.5 + 2 * draw.Uniform());
  run.fall = 1 + 20 * draw.Uniform();
  run.noise = 0.05 + 0.45 * draw.Uniform();
  run.correlation = 0.9 * draw.Uniform();
  run.digits = seed % 5 == 0 ? 3 : 0;
  run.trend = -0.7 + 1.4 * draw.Uniform();
  return run;
}

Verdicts Judged(const NormRun& run, const std::string& rule) {
  Verdicts verdicts = VerdictsOn({run.Batch()}, {.rules = {rule}});
  std::erase_if(verdicts, [&](const v1::Verdict& v) { return v.rule() != rule; });
  return verdicts;
}

bool Warns(const Verdicts& verdicts) { return testing::Highest(verdicts) >= v1::LEVEL_WARNING; }

TEST(GradientNorm, NoFalseAlarmOnHealthyNorms) {
  int spikes = 0, vanished = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const NormRun run = Healthy(seed);
    spikes += Warns(Judged(run, kSpike)) ? 1 : 0;
    vanished += Warns(Judged(run, kVanish)) ? 1 : 0;
  }
  RecordProperty("spikes", spikes);
  EXPECT_LE(spikes, 3);  // as the rule's page states
  EXPECT_EQ(vanished, 0);
}

TEST(GradientNorm, SpikesAreFoundWhereTheyBegin) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    NormRun run = Healthy(seed);
    run.from = 300 + static_cast<int>(seed) * 13;
    run.length = seed % 2 == 0 ? 1 : 20;
    run.factor = std::exp(14 * std::max(run.noise, 0.1));
    for (const v1::Verdict& v : Judged(run, kSpike)) {
      if (v.finding().level() != v1::LEVEL_WARNING) continue;
      if (v.site().step_first() != run.from * run.every) continue;
      ++found;
      break;
    }
  }
  EXPECT_GE(found, 99);
}

TEST(GradientNorm, ExplosionAndVanishing) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    NormRun run = Healthy(seed);
    run.digits = 0;
    run.points = 300;
    run.from = 200;
    run.length = 100;
    run.ramps = true;
    run.factor = 3;
    EXPECT_GE(testing::Findings(Judged(run, kSpike), kSpike, "gradient-explosion"), 1) << seed;
    run.factor = 0.3;
    const Verdicts vanished = Judged(run, kVanish);
    ASSERT_EQ(testing::Findings(vanished, kVanish), 1) << seed;
    EXPECT_GT(vanished[0].site().step_first(), run.from);
  }
}

TEST(GradientNorm, TenInARow) {
  for (int length = 8; length <= 12; ++length) {
    for (const double norm : {2e6, 5e-8, 0.0}) {
      v1::Batch batch = test::BatchOf(test::SourceOf("run"));
      for (int i = 0; i < 150; ++i)
        test::AddScalar(&batch, "grad_norm", i, i >= 100 && i < 100 + length ? norm : 1);
      const Verdicts verdicts = VerdictsOn({batch}, {.rules = {kSpike, kVanish}});
      const int found = norm > 1 ? testing::Findings(verdicts, kSpike, "gradient-explosion")
                                 : testing::Findings(verdicts, kVanish);
      EXPECT_EQ(found, length >= 10 ? 1 : 0) << norm << " " << length;
    }
  }
}

// After a clip a spike cannot be seen; before it, it can.
TEST(GradientNorm, Clipping) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    NormRun run{.noise = 0.2, .seed = seed};
    run.clip = run.level;
    run.from = 1000;
    run.factor = 30;
    const Verdicts after = Judged(run, kSpike);
    ASSERT_FALSE(Warns(after)) << seed;
    EXPECT_EQ(testing::Outcome(after.back()), "clipped-after");
    run.clip = HUGE_VAL;
    EXPECT_TRUE(Warns(Judged(run, kSpike))) << seed;
  }
}

TEST(GradientNorm, PoisonNeitherAccusesNorBlinds) {
  for (const double poison : {std::nan(""), HUGE_VAL}) {
    for (const double norm : {1.0, 1e8, 1e-9}) {
      v1::Batch batch = test::BatchOf(test::SourceOf("run"));
      for (int i = 0; i < 200; ++i)
        test::AddScalar(&batch, "grad_norm", i,
                        i % 3 == 1 ? poison
                        : i >= 150 ? norm
                                   : 1 + 0.01 * (i % 7));
      const Verdicts verdicts = VerdictsOn({batch}, {.rules = {kSpike, kVanish}});
      EXPECT_EQ(testing::Findings(verdicts, kSpike, "gradient-explosion"), norm > 1 ? 1 : 0);
      EXPECT_EQ(testing::Findings(verdicts, kVanish), norm < 1 ? 1 : 0);
      EXPECT_EQ(Warns(verdicts), norm != 1.0);
    }
  }
}

}  // namespace
}  // namespace plumbline::rules
