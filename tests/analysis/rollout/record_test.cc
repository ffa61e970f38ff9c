// Tests the level of the E-test on clean runs, its power over faults, and the effect of non-finite
// values. Fixed seeds. If PLUMB_LONG=1, twenty times as many runs.
#include "analysis/rollout/record.h"

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

// The shares of the parts with tokens if there is one step, no worker and no version.
constexpr double kPoolAndParity = .375 + .0625;

int Runs(int n) { return std::getenv("PLUMB_LONG") != nullptr ? 20 * n : n; }

// The largest wealth at the end of any step of one run.
struct Peak {
  double up = -kInfinity, down = -kInfinity;
  bool beyond = false;
};

Peak PeakOf(RolloutSimulator& simulator, const RolloutSpec& spec, uint64_t seed, double kappa) {
  RecordTest test(.05);
  Peak peak;
  for (int step = 0; step < spec.steps; ++step) {
    for (const RolloutSequence& s : simulator.Step(step, seed)) test.Add(s);
    test.EndStep();
    peak.up = std::max(peak.up, test.log_wealth_up());
    if (!test.Beyond(kappa)) peak.down = std::max(peak.down, test.log_wealth_down(kappa));
  }
  peak.beyond = test.Beyond(kappa);
  return peak;
}

// Returns the maximum number of alarms in n clean runs at level alpha, up to a probability of about
// 1e-5.
double MostAlarms(int n, double alpha) {
  return n * alpha + 4.3 * std::sqrt(n * alpha * (1 - alpha)) + 1;
}

struct Honest {
  const char* name;
  RolloutSpec spec;
};

std::vector<Honest> HonestRuns(const std::string& family) {
  const RolloutSpec base{.family = family, .steps = 8, .sequences = 16, .length = 48};
  std::vector<Honest> list;
  const auto add = [&](const char* name, auto change) {
    RolloutSpec spec = base;
    change(spec);
    list.push_back({name, spec});
  };
  add("dense", [](RolloutSpec&) {});
  add("moe", [](RolloutSpec& s) { s.noise = "moe"; });
  add("fp8", [](RolloutSpec& s) { s.noise = "fp8"; });
  add("stale by 8", [](RolloutSpec& s) { s.lag = 8; });
  add("deterministic", [](RolloutSpec& s) { s.noise = "none"; });
  add("bf16 records", [](RolloutSpec& s) { s.rounded = "both"; });
  add("four decimals", [](RolloutSpec& s) { s.decimals = 4; });
  add("uneven lengths", [](RolloutSpec& s) {
    s.uneven = true;
    s.noise = "fp8";
  });
  add("one context", [](RolloutSpec& s) {
    s.contexts = 1;
    s.noise = "fp8";
    s.sequences = 64;
  });
  return list;
}

class RecordLevel : public ::testing::TestWithParam<const char*> {};

TEST_P(RecordLevel, HonestRunsAlarmAsSeldomAsPromised) {
  const int runs = Runs(100);
  for (const Honest& honest : HonestRuns(GetParam())) {
    RolloutSimulator simulator(honest.spec);
    int up[2] = {}, down[2] = {}, beyond = 0;
    for (int run = 1; run <= runs; ++run) {
      const Peak peak = PeakOf(simulator, honest.spec, static_cast<uint64_t>(run), kDefaultKappa);
      beyond += peak.beyond;
      int i = 0;
      for (const double alpha : {.05, .01}) {
        up[i] += peak.up >= -std::log(alpha);
        down[i] += peak.down >= -std::log(alpha);
        ++i;
      }
    }
    std::printf("%-6s %-15s at .05: up %.3f down %.3f; at .01: %.3f %.3f; %d of %d beyond kappa\n",
                GetParam(), honest.name, 1.0 * up[0] / runs, 1.0 * down[0] / runs,
                1.0 * up[1] / runs, 1.0 * down[1] / runs, beyond, runs);
    EXPECT_LE(up[0], MostAlarms(runs, .05)) << honest.name;
    EXPECT_LE(up[1], MostAlarms(runs, .01)) << honest.name;
    EXPECT_LE(down[0], MostAlarms(runs, .05)) << honest.name;
    EXPECT_LE(down[1], MostAlarms(runs, .01)) << honest.name;
  }
}
INSTANTIATE_TEST_SUITE_P(Families, RecordLevel, ::testing::Values("small", "large"));

// Tests sequences that are selected by content: those with the largest surprise are dropped.
TEST(RecordTest, AKnownShareOfKeptSequencesKeepsTheLevel) {
  const int runs = Runs(200);
  int alarms = 0, undeclared = 0;
  const RolloutSpec spec{.family = "small",
                         .steps = 8,
                         .sequences = 16,
                         .length = 24,
                         .noise = "fp8",
                         .noise_scale = 4};
  RolloutSimulator simulator(spec);
  for (int run = 1; run <= runs; ++run) {
    RecordTest known(.075), silent(.075);
    for (int step = 0; step < spec.steps; ++step) {
      for (RolloutSequence& s : simulator.Step(step, static_cast<uint64_t>(run))) {
        double sum = 0;
        for (const RolloutToken& t : s.tokens) sum += t.train - t.rollout;
        if (sum < -.5) continue;  // for any history, more than half are kept
        silent.Add(s);
        s.selection = v1::LogprobsSequence::SELECTION_FILTERED;
        s.kept_share = .5;
        known.Add(s);
      }
      known.EndStep();
      silent.EndStep();
    }
    alarms += known.alarmed_up();
    undeclared += silent.alarmed_up();
  }
  EXPECT_LE(alarms, MostAlarms(runs, .05));
  EXPECT_GT(undeclared, runs / 2);  // the selection is strong enough to matter
}

// ---- power ----

// Returns the median over seeds of the number of tokens until an alarm at 1e-6 on either side,
// checked every 8 tokens; infinity if half of them have no alarm within the budget.
double TokensToAlarm(RolloutSpec spec, bool up, int most_tokens) {
  spec.sequences = 8;
  spec.length = 64;
  RolloutSimulator simulator(spec);
  std::vector<double> tokens;
  for (uint64_t seed = 1; seed <= 9; ++seed) {
    RecordTest test(up ? 1.5e-6 : 3e-6);
    double at = kInfinity;
    for (int step = 0; test.tokens() < static_cast<uint64_t>(most_tokens) && at == kInfinity;
         ++step) {
      for (RolloutSequence& s : simulator.Step(step, seed)) {
        for (size_t i = 0; i < s.tokens.size() && at == kInfinity; i += 8) {
          RolloutSequence part = s;
          part.tokens.assign(
              s.tokens.begin() + static_cast<std::ptrdiff_t>(i),
              s.tokens.begin() + static_cast<std::ptrdiff_t>(std::min(i + 8, s.tokens.size())));
          test.Add(part);
          test.EndStep();
          if (up ? test.alarmed_up() : test.alarmed_down()) at = static_cast<double>(test.tokens());
        }
      }
    }
    tokens.push_back(at);
  }
  std::sort(tokens.begin(), tokens.end());
  return tokens[tokens.size() / 2];
}

struct Sin {
  const char* name;
  RolloutSpec spec;
  bool up;
  // Maximum number of tokens until the alarm; infinity if no alarm is required.
  double small, large;
};

// Returns ln of the wealth for the same tokens without workers, steps and versions.
double PoolOf(RolloutSimulator& simulator, const RolloutSpec& spec) {
  RecordTest test(1e-6);
  for (int step = 0; step < spec.steps; ++step) {
    for (RolloutSequence& s : simulator.Step(step)) {
      s.worker.clear();
      s.step = 0;
      for (RolloutToken& t : s.tokens) t.version = kNoVersion;
      test.Add(s);
    }
  }
  return test.log_wealth_up();
}

// Tests one worker of four, every other step, with other tokens that reduce the pool's wealth: the
// part is ahead.
TEST(RecordPower, AGuiltyPartIsFoundAndNamed) {
  constexpr int kRuns = 10;
  for (const char* noise : {"dense", "fp8"}) {
    for (const std::string part : {"worker", "step"}) {
      int found = 0, named = 0;
      double ahead = 0;  // Advantage over the pool alone, in nats.
      for (int run = 0; run < kRuns; ++run) {
        // 24 steps of 8 sequences of 64 tokens: 12,288.
        RolloutSpec spec{.steps = 24, .sequences = 8, .workers = 4, .seed = 40 + run};
        spec.noise = noise;
        spec.noise_scale = 4;
        spec.sin = "raw-at-temperature";
        spec.temperature = .85;
        spec.guilty = part;
        spec.guilty_every = part == "worker" ? 4 : 2;
        RolloutSimulator simulator(spec);
        RecordTest test(.75e-6 / 8);
        for (int step = 0; step < spec.steps; ++step) {
          for (const RolloutSequence& s : simulator.Step(step)) test.Add(s);
          test.EndStep();
        }
        found += test.alarmed_up();
        const std::string words = test.LeaderUp().name.Words();
        named += words == "worker worker-0" || words == "even steps";
        ahead += (test.log_wealth_up() - PoolOf(simulator, spec)) / kRuns;
      }
      std::printf(
          "%-6s %-6s found in %d of %d runs of 12,288 tokens, named in %d, %.1f nats ahead\n",
          noise, part.c_str(), found, kRuns, named, ahead);
      EXPECT_GE(found, kRuns * 8 / 10) << part << " " << noise;
      EXPECT_GE(named, kRuns * 8 / 10);
      EXPECT_GT(ahead, 3);
    }
  }
}

TEST(RecordPower, TokensToAnAlarm) {
  const auto at = [](double t) {
    return RolloutSpec{.sin = "raw-at-temperature", .temperature = t};
  };
  const auto top = [](double p) { return RolloutSpec{.sin = "truncated", .top_p = p}; };
  const auto of = [](const char* sin, double share) {
    return RolloutSpec{.sin = sin, .share = share};
  };
  const std::vector<Sin> sins = {
      {"T = 0.7", at(.7), true, 600, 600},
      {"T = 0.9", at(.9), true, 4000, 4000},
      {"T = 0.95", at(.95), true, 16000, 16000},
      {"T = 1.05", at(1.05), true, 16000, 16000},
      {"T = 1.1", at(1.1), true, 4000, 5000},
      {"T = 1.5", at(1.5), true, 600, 600},
      {"off by one", of("off-by-one", 0), true, 64, 64},
      {"retokenised 1 %", of("retokenised", .01), true, kInfinity, kInfinity},
      {"top-p 0.8", top(.8), false, 600, 1200},
      {"top-p 0.95", top(.95), false, 4000, 8000},
      {"top-p 0.99", top(.99), false, kInfinity, kInfinity},
      {"zeros 1 %", of("zero-filled", .01), false, 100000, kInfinity},
      {"zeros 5 %", of("zero-filled", .05), false, 6000, 20000},
  };
  const int most = std::getenv("PLUMB_LONG") != nullptr ? 400000 : 40000;
  for (Sin sin : sins) {
    for (const char* family : {"small", "large"}) {
      sin.spec.family = family;
      const double allowed = family[0] == 's' ? sin.small : sin.large;
      const double tokens = TokensToAlarm(sin.spec, sin.up, most);
      std::printf("%-16s %-6s alarm at 1e-6 %s after %.0f tokens\n", sin.name, family,
                  sin.up ? "upward" : "downward", tokens);
      if (allowed <= most) {
        EXPECT_LE(tokens, allowed) << sin.name << ", " << family;
      }
    }
  }
}

// ---- poison ----

RolloutSequence Tokens(std::vector<std::pair<double, double>> train_rollout) {
  RolloutSequence s;
  s.id = "s";
  for (const auto& [train, rollout] : train_rollout) {
    RolloutToken t;
    t.train = train;
    t.rollout = rollout;
    t.position = static_cast<int64_t>(s.tokens.size());
    s.tokens.push_back(t);
  }
  return s;
}

TEST(RecordTest, EveryTokenFarOffReadsAsWorst) {
  RecordTest test(1e-6);
  std::vector<std::pair<double, double>> tokens;
  for (int i = 0; i < 1000; ++i) tokens.push_back({i % 2 == 0 ? -1 : -22, i % 2 == 0 ? -21 : -2});
  test.Add(Tokens(tokens));
  test.EndStep();
  EXPECT_TRUE(test.alarmed_up());
  EXPECT_GT(test.log_wealth_up(), 1000);
  EXPECT_GT(test.moments().mean_k3(), 1e8);
  EXPECT_TRUE(test.Beyond(kDefaultKappa));
  EXPECT_FALSE(test.alarmed_down());
}

TEST(RecordTest, WhatOverflowsDoublesStaysWorst) {
  RecordTest test(1e-6);
  test.Add(Tokens({{-1, -2000}, {-1, -1e5}, {-2000, -1}}));
  test.EndStep();
  EXPECT_TRUE(test.alarmed_up());
  EXPECT_GT(test.log_wealth_up(), 1e4);
  EXPECT_FALSE(std::isnan(test.log_wealth_down(kDefaultKappa)));
  EXPECT_FALSE(std::isnan(test.moments().mean_k3()));
}

TEST(RecordTest, PoisonIsCountedAndLeavesTheRestAsItWas) {
  RolloutSpec spec{.sin = "raw-at-temperature", .temperature = .7};
  RolloutSimulator simulator(spec);
  RecordTest clean(1e-6), poisoned(1e-6);
  uint64_t added = 0;
  const double nan = kNotRecorded;
  for (RolloutSequence& s : simulator.Step(0)) {
    clean.Add(s);
    RolloutSequence bad =
        Tokens({{nan, -1}, {-1, nan}, {-1, -kInfinity}, {-1, kInfinity}, {kInfinity, -1}});
    s.tokens.insert(s.tokens.begin() + 3, bad.tokens.begin(), bad.tokens.end());
    added += bad.tokens.size();
    poisoned.Add(s);
  }
  EXPECT_EQ(poisoned.non_finite(), added);
  EXPECT_EQ(poisoned.tokens(), clean.tokens());
  // Upward, a token without one side's value counts as a ratio of 0.
  EXPECT_LT(poisoned.log_wealth_up(), clean.log_wealth_up());
  EXPECT_DOUBLE_EQ(poisoned.moments().mean_k3(), clean.moments().mean_k3());
}

TEST(RecordTest, AProbabilityOfZeroIsARatioOfZero) {
  RecordTest test(1e-6);
  test.Add(Tokens({{-kInfinity, -1}, {-kInfinity, -1}, {-1, -1}}));
  EXPECT_EQ(test.impossible(), 2u);
  EXPECT_EQ(test.tokens(), 3u);
  EXPECT_EQ(test.moments().n, 1u);
  // The mean over lambda = 2^-j of (1 - lambda)^2.
  double mean = 0;
  for (int j = 0; j < 9; ++j) mean += std::pow(1 - std::ldexp(1, -j), 2) / 9;
  EXPECT_NEAR(test.log_wealth_up(), std::log(kPoolAndParity * mean), 1e-12);
}

// Tests the wealth against products in extended precision.
TEST(RecordTest, WealthIsTheMixtureOfProducts) {
  RolloutSpec spec{.sequences = 2, .length = 40, .noise = "fp8", .rounded = "both"};
  RolloutSimulator simulator(spec);
  RecordTest test(1e-6);
  long double up[9], down[7];
  std::fill_n(up, 9, 1.0L);
  std::fill_n(down, 7, 1.0L);
  for (RolloutSequence& s : simulator.Step(0)) {
    s.worker.clear();
    for (RolloutToken& t : s.tokens) t.version = kNoVersion;
    test.Add(s);
    for (const RolloutToken& t : s.tokens) {
      const double eta = s.train_grid.HalfUnit(t.train) + s.rollout_grid.HalfUnit(t.rollout);
      EXPECT_GT(eta, 0);
      const long double d = t.train - t.rollout;
      for (int j = 0; j < 9; ++j) up[j] *= 1 + std::ldexp(1.0L, -j) * (std::exp(d - eta) - 1);
      for (int j = 0; j < 7; ++j) {
        const long double l = std::ldexp(1.0L, -j), far = std::log(1 + 1 / l);
        down[j] *= std::max(0.0L, 1 + l * (1 - std::exp(d + eta))) / (1 + l * .05L / (far * far));
      }
    }
  }
  long double sum_up = 0, sum_down = 0;
  for (const long double p : up) sum_up += p / 9;
  for (const long double p : down) sum_down += p / 7;
  EXPECT_NEAR(test.log_wealth_up(), static_cast<double>(std::log(kPoolAndParity * sum_up)), 1e-10);
  EXPECT_NEAR(test.log_wealth_down(.05), static_cast<double>(std::log(kPoolAndParity * sum_down)),
              1e-10);
}

TEST(RecordTest, WhatMayNotEnterDoesNot) {
  using S = v1::LogprobsSequence;
  RecordTest test(1e-6);
  RolloutSequence s = Tokens({{-1, -2}, {-1, -2}});
  s.tokens[1].judged = false;
  EXPECT_EQ(test.Add(s), RecordTest::Entry::kEnters);
  EXPECT_EQ(test.tokens(), 1u);
  s.later_epoch = true;
  EXPECT_EQ(test.Add(s), RecordTest::Entry::kLaterEpoch);
  s.later_epoch = false;
  s.selection = S::SELECTION_FILTERED;
  EXPECT_EQ(test.Add(s), RecordTest::Entry::kFiltered);
  s.kept_share = .5;
  const double before = test.log_wealth_up();
  EXPECT_EQ(test.Add(s), RecordTest::Entry::kEnters);
  EXPECT_LT(test.log_wealth_up(), before + 1);
  s.selection = S::SELECTION_ALL;
  s.source = S::SOURCE_RESCORED;
  EXPECT_EQ(test.Add(s), RecordTest::Entry::kRescored);
  s.rescore_k2 = 1e-3;
  EXPECT_EQ(test.Add(s), RecordTest::Entry::kEnters);
  EXPECT_EQ(test.tokens(), 3u);
}

// ---- full logits ----

TEST(RecordTest, RowsNeedNoKappaAndKeepTheLevel) {
  const int runs = Runs(60);
  RolloutSpec spec{
      .sequences = 16, .length = 32, .noise = "fp8", .noise_scale = 20, .logits = true};
  int alarms = 0;
  for (int run = 1; run <= runs; ++run) {
    spec.seed = run;
    spec.contexts = 8;
    RolloutSimulator simulator(spec);
    RecordTest test(.15);
    for (int step = 0; step < 4; ++step) {
      const v1::Logits logits = simulator.LogitsOf(step);
      for (const v1::LogitsRow& row : logits.rows()) test.AddRow(row, step);
      test.EndStep();
    }
    EXPECT_FALSE(test.Beyond(kDefaultKappa));  // kappa limits none of them
    alarms += test.alarmed_down();
  }
  EXPECT_LE(alarms, MostAlarms(runs, .05));
}

}  // namespace
}  // namespace plumbline::analysis
