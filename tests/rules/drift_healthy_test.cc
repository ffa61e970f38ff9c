// Tests that healthy runs give no drift finding of level warning or above: dense, with router
// flips, with fp8-like noise, stale by up to 8 versions, deterministic, rounded to 16 bits, from
// text, with non-finite values. Hundreds of runs; 10,000 if PLUMB_LONG=1.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "analysis/drift/run.h"
#include "tests/rules/support/simulated_rollout.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::RolloutRun;
using testing::RolloutSpec;
using testing::VerdictsOn;

bool Long() { return std::getenv("PLUMB_LONG") != nullptr; }

// Returns the run-th configuration. Over many runs, all pairs of features occur.
RolloutSpec Healthy(int run) {
  RolloutSpec spec;
  spec.seed = 5000 + run;
  spec.sequences = 12;
  spec.length = 24 + 8 * (run % 4);
  spec.steps = 2 + run % 23;
  const char* const kNoises[] = {"dense", "moe", "fp8", "none", "dense"};
  spec.noise = kNoises[run % 5];
  spec.lag = run % 3 == 0 ? run % 9 : 0;
  spec.uneven = run % 7 == 0;
  spec.entropy = run % 2 == 0;
  spec.varentropy = run % 4 == 0;
  spec.rollout_entropy = spec.rollout_varentropy = run % 11 == 0;
  spec.advantages = run % 2 == 1;
  spec.versions_recorded = run % 6 != 5;
  if (run % 13 == 0) spec.rounded = run % 2 == 0 ? "both" : "rollout";
  if (run % 17 == 0) spec.decimals = 4;
  if (run % 19 == 0) spec.poison_every = 50;
  if (run % 23 == 0) spec.mask_every = 7;
  spec.sharpness = run % 29 == 0 ? 2 : 1;
  spec.behaviour = run % 10 == 3;
  if (run % 12 == 7 && spec.lag > 0) spec.in_flight = 1 + run % spec.lag;
  if (run % 14 == 9) spec.restart_every = 6 + run % 3;
  return spec;
}

TEST(DriftHealthy, NoFindingOfLevelWarning) {
  const int runs = Long() ? 10000 : 300;
  std::map<std::string, int> loud;
  for (int run = 0; run < runs; ++run) {
    for (const v1::Verdict& verdict : VerdictsOn(
             {RolloutRun(Healthy(run))}, {.rules = {"drift/*", "performance/rollout-straggler"}})) {
      if (verdict.finding().level() < v1::LEVEL_WARNING) continue;
      const std::string what = verdict.rule() + ": " + verdict.finding().explanation();
      if (++loud[verdict.rule()] <= 3)
        std::printf("run %d (%s): %s\n", run, Healthy(run).noise.c_str(), what.c_str());
    }
  }
  for (const auto& [rule, count] : loud) ADD_FAILURE() << rule << " in " << count << " of " << runs;
}

// Every |d| is 20: no rule may pass.
TEST(DriftHealthy, AllWrongIsNeverClean) {
  RolloutSpec spec;
  spec.far = true;
  int findings = 0, passes = 0;
  for (const v1::Verdict& verdict : VerdictsOn({RolloutRun(spec)}, {.rules = {"drift/*"}})) {
    findings += verdict.finding().level() >= v1::LEVEL_WARNING;
    passes +=
        verdict.kind() == v1::Verdict::KIND_PASS && verdict.rule() != "drift/sampler-mismatch";
  }
  EXPECT_GE(findings, 2);  // at least record-invalid and logit-drift
  EXPECT_EQ(passes, 0);
}

// Prints the detection rate of the temperature fit by size of the bias (a power curve).
TEST(DriftHealthy, PowerOverTemperature) {
  constexpr int kRuns = 20;
  for (const double t : {1.005, 1.02, 1.05, 1.2}) {
    int found = 0;
    for (int run = 0; run < kRuns; ++run) {
      RolloutSpec spec;
      spec.sin = "processed-against-raw";
      spec.temperature = t;
      spec.entropy = true;
      spec.seed = 77 + run;
      DriftSite site("policy", "logprobs");
      testing::RolloutSimulator simulator(spec);
      for (int step = 0; step < spec.steps; ++step) {
        site.BeginStep(0, step);
        for (const RolloutSequence& sequence : simulator.Step(step)) site.Take(sequence);
        site.EndStep();
      }
      const TemperatureMark mark = FindTemperature(site.statistics);
      found += mark.found();
      // The slope gives the temperature: rollout at 1 / (1 - c).
      if (mark.by_entropy) {
        EXPECT_NEAR(1 / (1 - mark.fit.slope), t, 0.1 * std::fabs(t - 1) + 0.01);
      }
    }
    std::printf("rollout at %.3f: %d of %d found in 4,096 tokens\n", t, found, kRuns);
    EXPECT_GE(found, t >= 1.05 ? kRuns : 0);
  }
}

}  // namespace
}  // namespace plumbline::rules
