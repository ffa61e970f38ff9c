// Tests the parts of the S-test: workers, versions and steps hidden by the pool, the joint level of
// all parts, the fairness of every bet. Fixed seeds.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "analysis/drift/run.h"
#include "analysis/rollout/sampler.h"
#include "analysis/statistics/alpha_shares.h"
#include "tests/rules/support/rollout_cells.h"
#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::analysis {
namespace {

using rules::testing::RolloutSimulator;
using rules::testing::RolloutSpec;
using By = SamplerTest::By;

int Runs(int n) { return std::getenv("PLUMB_LONG") != nullptr ? 20 * n : n; }

// Returns the rule's alpha for the only site of a run.
double AlphaOfASite() {
  return kSamplerAlphaWeight * kRunAlpha * AlphaShares().Next(v1::ROLE_TRAINER);
}

// The columns of a recording and the possible test.
struct Columns {
  const char* name;
  By by;
  bool entropy, rollout_entropy, rollout_varentropy;
};
constexpr Columns kColumns[] = {
    {"rollout H and V", By::kRollout, false, true, true},
    {"rollout H", By::kRolloutEntropy, false, true, false},
    {"trainer H", By::kTrainer, true, false, false},
};

RolloutSpec With(RolloutSpec spec, const Columns& c) {
  spec.entropy = c.entropy;
  spec.rollout_entropy = c.rollout_entropy;
  spec.rollout_varentropy = c.rollout_varentropy;
  return spec;
}

// Returns a test after the run. `first` is the sequence of each step that enters first, so its
// worker appears first.
SamplerTest Played(const RolloutSpec& spec, double alpha, uint64_t seed, size_t first = 0) {
  RolloutSimulator simulator(spec);
  SamplerTest test(alpha);
  for (int step = 0; step < spec.steps; ++step) {
    const std::vector<RolloutSequence> sequences = simulator.Step(step, seed);
    for (size_t i = 0; i < sequences.size(); ++i)
      test.Add(sequences[(i + first) % sequences.size()]);
    test.EndStep();
  }
  return test;
}
SamplerSide Found(const SamplerTest& test, const Columns& columns) {
  return columns.by == By::kRollout ? test.alarmed() : test.FinalLook();
}

// Tests workers at 0.85 and 1.15 whose samples are together as likely as recorded.
TEST(SamplerParts, ThoseThatCancelInThePoolAreFound) {
  for (const char* part : {"worker", "step", "version"}) {
    for (const Columns& columns : kColumns) {
      RolloutSpec spec = With({.steps = 64, .sequences = 16, .length = 32, .workers = 2}, columns);
      spec.sin = "both-raw";
      spec.temperature = .85;
      spec.other_temperature = 1.15;
      spec.guilty = part;
      spec.guilty_every = 2;
      const SamplerTest test = Played(spec, 1e-7, 1);
      const SamplerSide side = Found(test, columns);
      EXPECT_NE(side, SamplerSide::kNone) << part << ", " << columns.name;
      const SamplerTest::Leader leader = test.leader();
      EXPECT_FALSE(leader.name.pool()) << columns.name;
      EXPECT_EQ(side == SamplerSide::kBelow, leader.mean < 0);
    }
  }
}

// Returns the fraction of runs in which one worker of four at another temperature is found at the
// rule's alpha for a site. That worker appears first, second, third and last in turn.
double ShareFound(RolloutSpec spec, const Columns& columns, int runs, int* named) {
  int found = 0;
  spec.sin = "both-raw";
  spec.guilty = "worker";
  spec.guilty_every = spec.workers = 4;
  for (int run = 0; run < runs; ++run) {
    spec.seed = 70 + run;
    const auto first = static_cast<size_t>(run % 4);
    const SamplerTest test = Played(With(spec, columns), AlphaOfASite(), 0, first);
    found += Found(test, columns) != SamplerSide::kNone;
    *named += test.leader().name.Words() == "worker worker-0";
  }
  return static_cast<double>(found) / runs;
}

TEST(SamplerParts, OneWorkerOfFourIsFound) {
  struct Case {
    const char* family;
    double temperature;
    int tokens;
    double least;  // Minimum fraction of runs, with the rollout's H and V.
  };
  // 64 tokens of varentropy 1.9: the optimal test with known worker and temperature has 3,072 *
  // 0.0104 = 32 nats at 0.9, and 26 at 1.1; the alarm is at 23.8.
  const Case cases[] = {{"small", .9, 12288, .4},  {"small", .9, 16384, .75},
                        {"small", .9, 24576, .95}, {"small", .85, 12288, .95},
                        {"small", 1.1, 24576, .9}, {"large", .9, 12288, .95},
                        {"large", 1.1, 12288, .9}, {"large", .95, 24576, .3}};
  const int runs = Runs(10);
  for (const Case& c : cases) {
    for (const Columns& columns : kColumns) {
      if (columns.by != By::kRollout && c.tokens > 12288) continue;
      const RolloutSpec spec{.family = c.family,
                             .contexts = 64,
                             .steps = c.tokens / 512,
                             .length = 32,
                             .temperature = c.temperature};
      int named = 0;
      const double found = ShareFound(spec, columns, runs, &named);
      std::printf("%s, %-16s one worker of four at %.2f, %d tokens: found in %.2f, named in %d\n",
                  c.family, columns.name, c.temperature, c.tokens, found, named);
      if (columns.by == By::kRollout) {
        // Fails if the number is below the promise by more than 3 binomial standard deviations.
        EXPECT_GE(found, c.least - 3 * std::sqrt(c.least * (1 - c.least) / runs))
            << c.family << " " << c.temperature << " " << c.tokens;
      }
    }
  }
}

// Tests that all parts together alarm as rarely as the pool alone, for any number of parts.
TEST(SamplerParts, TheLevelHoldsForManyWorkers) {
  for (const Columns& columns : kColumns) {
    for (const int workers : {4, 16, 64, -16}) {
      const int runs = Runs(40);
      RolloutSpec spec = With({.steps = 8, .length = 16, .noise = "fp8"}, columns);
      if (workers < 0) spec.contexts = 1;  // every token is in one context
      spec.workers = spec.sequences = std::abs(workers);
      RolloutSimulator simulator(spec);
      int alarms[2] = {};
      for (int run = 1; run <= runs; ++run) {
        SamplerTest tests[] = {SamplerTest(.05), SamplerTest(.01)};
        for (int step = 0; step < spec.steps; ++step) {
          for (const RolloutSequence& s : simulator.Step(step, static_cast<uint64_t>(run))) {
            for (SamplerTest& test : tests) test.Add(s);
          }
          for (SamplerTest& test : tests) test.EndStep();
        }
        for (int i : {0, 1}) alarms[i] += Found(tests[i], columns) != SamplerSide::kNone;
      }
      std::printf("%-16s %2d workers%s, %d runs: at .05 %d, at .01 %d alarms\n", columns.name,
                  std::abs(workers), workers < 0 ? " in one context" : "", runs, alarms[0],
                  alarms[1]);
      for (int i : {0, 1}) {
        const double p = i == 0 ? .05 : .01;
        EXPECT_LE(alarms[i], runs * p + 4.3 * std::sqrt(runs * p * (1 - p)) + 1)
            << columns.name << ", " << workers << " workers, " << p;
      }
    }
  }
}

// Checks that no bet is unfair: the mean wealth factor over the tokens of a context. The pool and
// the even steps have .4375 of the wealth.
void FairBets(const RolloutSpec& spec, int decimals) {
  rules::testing::RolloutCells cells(spec);
  const double unit = std::pow(10.0, decimals);
  const auto text = [&](double value) {
    return decimals < 0 ? value : std::nearbyint(value * unit) / unit;
  };
  for (int context = 0; context < cells.contexts(); ++context) {
    const rules::testing::RolloutCell& cell = cells.Get({}, context);
    RolloutSequence s;
    RolloutToken& t = s.tokens.emplace_back();
    s.rollout_grid.decimal = decimals < 0 ? 0 : .5 / unit;
    s.rollout_entropy_grid = s.rollout_varentropy_grid = s.rollout_grid;
    t.rollout_entropy = text(cell.of_rollout.entropy);
    t.rollout_varentropy = text(cell.of_rollout.varentropy);
    double mean = 0;
    for (const double log_mu : cell.rollout) {
      t.train = t.rollout = text(log_mu);
      SamplerTest test(1e-6);
      test.Add(s);
      mean += std::exp(log_mu + test.log_wealth());
    }
    EXPECT_LE(mean, .4375 * (1 + 1e-9)) << spec.family << " " << spec.sharpness << " " << decimals;
    if (decimals < 0) {
      EXPECT_GE(mean, .4375 * .98) << spec.family << " " << spec.sharpness;
    }
  }
}

// Tests that no bet is unfair: for every context, the mean over its own tokens is at most 1, for
// any rounding.
TEST(SamplerTest, EveryBetIsFairInEveryContext) {
  for (const char* family : {"small", "large"}) {
    for (const double sharpness : {.05, 1.0, 4.0}) {
      for (const int decimals : {-1, 2}) {
        FairBets({.family = family, .contexts = 8, .sharpness = sharpness}, decimals);
      }
    }
  }
}

}  // namespace
}  // namespace plumbline::analysis
