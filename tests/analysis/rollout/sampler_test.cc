// Tests the level of the S-test on clean runs, and its power over temperatures and truncated tails.
// Fixed seeds.
#include "analysis/rollout/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "base/real.h"
#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::analysis {
namespace {

using rules::testing::RolloutSimulator;
using rules::testing::RolloutSpec;
using By = SamplerTest::By;

int Runs(int n) { return std::getenv("PLUMB_LONG") != nullptr ? 20 * n : n; }

double MostAlarms(int n, double alpha) {
  return n * alpha + 4.3 * std::sqrt(n * alpha * (1 - alpha)) + 1;
}

void AddStep(RolloutSimulator& simulator, const RolloutSpec& spec, int step, uint64_t seed,
             SamplerTest& test) {
  if (spec.logits) {
    const v1::Logits logits = simulator.LogitsOf(step, seed);
    for (const v1::LogitsRow& row : logits.rows()) test.AddRow(row);
  } else {
    for (const RolloutSequence& s : simulator.Step(step, seed)) test.Add(s);
  }
  test.EndStep();
}

// The columns of a recording and the possible test.
struct Columns {
  const char* name;
  By by;
  bool entropy, rollout_entropy, rollout_varentropy, logits;
};
constexpr Columns kColumns[] = {
    {"full logits", By::kLogits, false, false, false, true},
    {"rollout H and V", By::kRollout, false, true, true, false},
    {"rollout H", By::kRolloutEntropy, false, true, false, false},
    {"trainer H", By::kTrainer, true, false, false, false},
};

RolloutSpec With(RolloutSpec spec, const Columns& c) {
  spec.entropy = c.entropy;
  spec.rollout_entropy = c.rollout_entropy;
  spec.rollout_varentropy = c.rollout_varentropy;
  spec.logits = c.logits;
  return spec;
}

// Returns the smallest p-value of a run at the end of any step or of the run.
double LeastP(RolloutSimulator& simulator, const RolloutSpec& spec, uint64_t seed, By by) {
  SamplerTest test(.05);
  double p = 1;
  for (int step = 0; step < spec.steps; ++step) {
    AddStep(simulator, spec, step, seed, test);
    if (by == By::kLogits || by == By::kRollout) p = std::min(p, std::exp(-test.log_wealth()));
  }
  EXPECT_EQ(test.by(), by);
  return by == By::kLogits || by == By::kRollout ? p : test.p_value();
}

class SamplerLevel : public ::testing::TestWithParam<const char*> {};

TEST_P(SamplerLevel, HonestRunsAlarmAsSeldomAsPromised) {
  const RolloutSpec base{
      .family = GetParam(), .steps = 4, .sequences = 24, .length = 24, .noise = "fp8"};
  for (const Columns& columns : kColumns) {
    const int runs = Runs(columns.logits ? 40 : 100);
    for (const std::string kind : {"plain", "stale", "moe", "one context", "bf16", "processed"}) {
      RolloutSpec spec = With(base, columns);
      if (kind == "stale") spec.lag = 8;
      if (kind == "moe") spec.noise = "moe";
      if (kind == "one context") spec.contexts = 1;
      if (kind == "bf16") spec.rounded = "both";
      if (kind == "processed") {
        spec.sin = "processed-against-raw";  // drift, but correct recording and sampler
        spec.temperature = .9;
      }
      if (columns.logits && kind == "bf16") continue;
      RolloutSimulator simulator(spec);
      int alarms[3] = {};
      for (int run = 1; run <= runs; ++run) {
        const double p = LeastP(simulator, spec, static_cast<uint64_t>(run), columns.by);
        alarms[0] += p <= .05;
        alarms[1] += p <= .01;
        alarms[2] += p <= .0001;
      }
      std::printf("%-6s %-16s %-12s at .05: %.3f, at .01: %.3f, at 1e-4: %.4f\n", GetParam(),
                  columns.name, kind.c_str(), 1.0 * alarms[0] / runs, 1.0 * alarms[1] / runs,
                  1.0 * alarms[2] / runs);
      EXPECT_LE(alarms[0], MostAlarms(runs, .05)) << columns.name << ", " << kind;
      EXPECT_LE(alarms[1], MostAlarms(runs, .01)) << columns.name << ", " << kind;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Families, SamplerLevel, ::testing::Values("small", "large"));

// Returns the median over seeds of the number of tokens until an alarm at 1e-6, checked every 512.
double TokensToAlarm(RolloutSpec spec, int most_tokens, SamplerSide* side) {
  spec.sequences = 16;
  spec.length = 32;
  RolloutSimulator simulator(spec);
  std::vector<double> tokens;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SamplerTest test(1e-6);
    double at = kInfinity;
    for (int step = 0; step * 512 < most_tokens && at == kInfinity; ++step) {
      AddStep(simulator, spec, step, seed, test);
      const SamplerSide found =
          test.alarmed() != SamplerSide::kNone ? test.alarmed() : test.FinalLook();
      if (found == SamplerSide::kNone) continue;
      *side = found;
      at = static_cast<double>(test.tokens());
    }
    tokens.push_back(at);
  }
  std::sort(tokens.begin(), tokens.end());
  return tokens[tokens.size() / 2];
}

TEST(SamplerPower, TokensToAnAlarm) {
  struct Effect {
    const char* name;
    double temperature, top_p;
    SamplerSide side;
    double most;
  };
  const Effect effects[] = {{"T = 0.7", .7, 1, SamplerSide::kBelow, 2048},
                            {"T = 0.9", .9, 1, SamplerSide::kBelow, 10240},
                            {"T = 1.1", 1.1, 1, SamplerSide::kAbove, 12288},
                            {"T = 1.4", 1.4, 1, SamplerSide::kAbove, 3072},
                            {"top-p 0.9", 1, .9, SamplerSide::kBelow, 4096},
                            {"top-p 0.98", 1, .98, SamplerSide::kBelow, 30720}};
  for (const Columns& columns : kColumns) {
    for (const Effect& effect : effects) {
      for (const char* family : {"small", "large"}) {
        RolloutSpec spec = With({.family = family}, columns);
        spec.sin = "both-raw";
        spec.temperature = effect.temperature;
        spec.top_p = effect.top_p;
        SamplerSide side = SamplerSide::kNone;
        const double tokens = TokensToAlarm(spec, 32768, &side);
        std::printf("%-16s %-10s %-6s alarm at 1e-6 after %.0f tokens\n", columns.name, effect.name,
                    family, tokens);
        EXPECT_LE(tokens, effect.most) << columns.name << ", " << effect.name << ", " << family;
        EXPECT_EQ(side, effect.side) << columns.name << ", " << effect.name << ", " << family;
      }
    }
  }
}

// Tests that an entropy with the same rounding error on every token is no evidence, for any number
// of tokens.
TEST(SamplerTest, RoundedColumnsOfOneContextStayQuiet) {
  for (const bool own : {true, false}) {
    RolloutSpec spec{
        .vocabulary = 1024, .contexts = 1, .sharpness = .3, .sequences = 4000, .length = 16};
    spec.rounded = "both";
    spec.noise = "none";
    (own ? spec.rollout_entropy : spec.entropy) = true;
    RolloutSimulator simulator(spec);
    SamplerTest test(.01);
    for (RolloutSequence& s : simulator.Step(0, 1)) {
      s.train_entropy_grid.format = s.rollout_entropy_grid.format = DType::kBF16;
      for (RolloutToken& t : s.tokens) {
        double& entropy = own ? t.rollout_entropy : t.train_entropy;
        entropy += .9 * s.train_entropy_grid.HalfUnit(entropy);  // the maximum effect of rounding
      }
      test.Add(s);
    }
    EXPECT_EQ(test.FinalLook(), SamplerSide::kNone) << test.p_value();
  }
}

TEST(SamplerTest, TheTemperatureIsEstimatedNearly) {
  for (const double t : {.8, .9, 1.1}) {
    RolloutSpec spec{.sequences = 400, .length = 64, .sin = "both-raw", .temperature = t};
    spec.rollout_entropy = spec.rollout_varentropy = true;
    RolloutSimulator simulator(spec);
    SamplerTest test(1e-6);
    AddStep(simulator, spec, 0, 1, test);
    EXPECT_NEAR(test.pool().temperature, t, .05);
  }
}

TEST(SamplerTest, PoisonIsCountedAndLeavesTheRestAsItWas) {
  RolloutSpec spec{.sequences = 64};
  spec.rollout_entropy = spec.rollout_varentropy = true;
  RolloutSimulator simulator(spec);
  SamplerTest clean(1e-6), poisoned(1e-6);
  for (RolloutSequence& s : simulator.Step(0)) {
    clean.Add(s);
    RolloutToken bad = s.tokens[0];
    for (const double value : {kNotRecorded, -kInfinity, kInfinity}) {
      bad.rollout = value;
      s.tokens.push_back(bad);
    }
    poisoned.Add(s);
  }
  EXPECT_EQ(poisoned.non_finite(), 3u * 64);
  EXPECT_EQ(poisoned.tokens(), clean.tokens());
  EXPECT_DOUBLE_EQ(poisoned.log_wealth(), clean.log_wealth());
}

// Tests a trainer entropy over another support.
TEST(SamplerTest, ACutSupportNeedsTheRolloutsColumns) {
  RolloutSpec spec{.sequences = 128, .sin = "truncated", .top_p = .9, .mode = "processed"};
  spec.declared = spec.entropy = true;
  RolloutSimulator simulator(spec);
  SamplerTest test(1e-6);
  AddStep(simulator, spec, 0, 1, test);
  EXPECT_EQ(test.by(), By::kNothing);
  EXPECT_EQ(test.cut(), 128u * 64);
  spec.rollout_entropy = spec.rollout_varentropy = true;
  RolloutSimulator with(spec);
  SamplerTest own(1e-6);
  AddStep(with, spec, 0, 1, own);
  EXPECT_EQ(own.by(), By::kRollout);
  EXPECT_EQ(own.alarmed(), SamplerSide::kNone);
}

// Tests the wealth against the definition in extended precision.
TEST(SamplerTest, WealthIsAMixtureOfBetsOfSecondOrder) {
  RolloutSpec spec{.sequences = 3, .length = 50};
  spec.rollout_entropy = spec.rollout_varentropy = true;
  RolloutSimulator simulator(spec);
  SamplerTest test(1e-6);
  long double products[14];
  std::fill(std::begin(products), std::end(products), 1.0L);
  for (RolloutSequence& s : simulator.Step(0)) {
    s.worker.clear();
    for (RolloutToken& t : s.tokens) t.version = kNoVersion;
    test.Add(s);
    for (const RolloutToken& t : s.tokens) {
      const long double h = t.rollout_entropy, v = t.rollout_varentropy, x = -t.rollout - h;
      for (int j = 0; j < 7; ++j) {
        const long double a = std::min(std::ldexp(1.0L, -j - 1), std::sqrt(.5L / v));
        const long double below = std::min(x, 1 / a), above = std::clamp(x, -1 / a, 8.0L);
        products[j] *= 1 - a * below + a * a / 2 * (below * below - v);
        products[7 + j] *= 1 + a * above + a * a / 2 * (above * above - v);
      }
    }
  }
  long double sum = 0;
  for (const long double product : products) sum += product / 14;
  EXPECT_NEAR(test.log_wealth(), static_cast<double>(std::log(.4375 * sum)),
              1e-9);  // pool and even steps
}

}  // namespace
}  // namespace plumbline::analysis
