// Tests the level of the bias test by simulation (the alarm rate without bias), and its parts by
// direct computation.
#include "analysis/statistics/bias_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "analysis/experts/chance.h"

namespace plumbline::analysis {
namespace {

using Rng = std::mt19937_64;

// The errors of one step in drawing order, and the size of their population (0 if unknown).
struct Step {
  std::vector<double> errors;
  uint64_t population = 0;
};
struct Null {
  std::string name;
  int steps;
  std::function<Step(Rng&)> draw;
};

// Draws with replacement, or from an infinite population.
Null Independent(std::string name, int count, std::function<double(Rng&)> one) {
  return {std::move(name), 1, [=](Rng& rng) {
            Step step;
            for (int i = 0; i < count; ++i) step.errors.push_back(one(rng));
            return step;
          }};
}

// `drawn` of the fixed population, without replacement, redrawn in each step.
Null Finite(std::string name, std::vector<double> population, size_t drawn, int steps) {
  return {std::move(name), steps, [=](Rng& rng) {
            Step step{population, population.size()};
            std::shuffle(step.errors.begin(), step.errors.end(), rng);
            step.errors.resize(drawn);
            return step;
          }};
}

std::vector<double> TwoValued(size_t n, size_t high, double low_value, double high_value) {
  std::vector<double> v(n, low_value);
  std::fill_n(v.begin(), high, high_value);
  return v;
}

std::vector<Null> Nulls() {
  const auto uniform = [](Rng& rng) { return std::uniform_real_distribution<double>()(rng); };
  const auto normal = [](Rng& rng) { return std::normal_distribution<double>()(rng); };
  const auto cauchy = [](Rng& rng) { return std::cauchy_distribution<double>()(rng); };
  std::vector<Null> nulls;
  // Means exactly at the budget of .05, values within ±1, hence at the budget on every scale.
  nulls.push_back(
      Independent("±1, mean .05", 2000, [=](Rng& r) { return uniform(r) < 0.525 ? 1.0 : -1.0; }));
  nulls.push_back(
      Independent("±1, mean -.05", 2000, [=](Rng& r) { return uniform(r) < 0.475 ? 1.0 : -1.0; }));
  nulls.push_back(Independent("skewed: 1 in 100 at -1, mean .05", 2000,
                              [=](Rng& r) { return uniform(r) < 0.01 ? -1.0 : 0.06 / 0.99; }));
  nulls.push_back(Independent("skewed: 1 in 20 at 1, mean .05", 2000,
                              [=](Rng& r) { return uniform(r) < 0.05 ? 1.0 : 0.0; }));
  nulls.push_back(Independent("multiples of 1/4, mean .05", 2000, [=](Rng& r) {
    const double u = uniform(r);
    return u < 0.4 ? 0.25 : u < 0.6 ? -0.25 : 0.0;
  }));
  // Within the budget on every scale, with unbounded tails.
  nulls.push_back(Independent("Cauchy", 2000, cauchy));
  nulls.push_back(
      Independent("normal, sd .5, mean .05", 2000, [=](Rng& r) { return 0.05 + 0.5 * normal(r); }));
  nulls.push_back(Independent("rare and huge: 1e9 once in 25,000, else 0", 2000,
                              [=](Rng& r) { return uniform(r) < 4e-5 ? 1e9 : 0.0; }));
  // Populations exactly at the budget, drawn completely or in part, in every step.
  nulls.push_back(Finite("all of 400, ±1, mean .05", TwoValued(400, 210, -1, 1), 400, 5));
  nulls.push_back(Finite("300 of 400, ±1, mean -.05", TwoValued(400, 190, -1, 1), 300, 5));
  nulls.push_back(Finite("all of 1,000, 5 % at 1", TwoValued(1000, 50, 0, 1), 1000, 2));
  nulls.push_back(Finite("all of 64, ±.4, mean .05", TwoValued(64, 36, -0.4, 0.4), 64, 30));
  // Noise in few elements: the mean of one step varies by sd / 8, without bias over the steps.
  nulls.push_back({"all of 64, normal, sd .5, anew each step", 60, [=](Rng& r) {
                     Step step{{}, 64};
                     for (int i = 0; i < 64; ++i) step.errors.push_back(0.5 * normal(r));
                     return step;
                   }});
  nulls.push_back({"all of 16, ±1, anew each step", 200, [=](Rng& r) {
                     Step step{{}, 16};
                     for (int i = 0; i < 16; ++i) step.errors.push_back(r() % 2 == 0 ? 1 : -1);
                     return step;
                   }});
  nulls.push_back({"one element a step, mean .05", 2000, [=](Rng& r) {
                     return Step{{uniform(r) < 0.525 ? 1.0 : -1.0}, 1};
                   }});
  // Dependent: the mean of the next value is at the budget, its spread depends on the last value.
  nulls.push_back({"spread follows the past", 1, [=](Rng& r) {
                     Step step;
                     double spread = 0.5;
                     for (int i = 0; i < 2000; ++i) {
                       const double e = 0.05 + (r() % 2 == 0 ? spread : -spread);
                       step.errors.push_back(e);
                       spread = e > 0 ? 0.9 : 0.1;
                     }
                     return step;
                   }});
  return nulls;
}

class Level : public ::testing::TestWithParam<double> {};

TEST_P(Level, IsKeptUnderEveryNull) {
  const double alpha = GetParam();
  constexpr int kRuns = 1000;
  for (const Null& null : Nulls()) {
    Rng rng(12345);
    int alarms = 0;
    int findings = 0;
    for (int run = 0; run < kRuns; ++run) {
      BiasStream stream(alpha);
      bool found = false;
      for (int s = 0; s < null.steps; ++s) {
        const Step step = null.draw(rng);
        stream.Add(step.errors,
                   step.population > 0 ? std::optional<uint64_t>(step.population) : std::nullopt);
        found |= stream.side() != BiasSide::kNone;
      }
      alarms += stream.alarmed() ? 1 : 0;
      findings += found ? 1 : 0;
    }
    std::printf("  alpha %.2f  %-46s alarms %4d of %d, findings %d\n", alpha, null.name.c_str(),
                alarms, kRuns, findings);
    // The probability of that many alarms at the level must exceed 1 in 100,000.
    EXPECT_GT(LogBinomialAtLeast(kRuns, alpha, static_cast<uint64_t>(alarms)), std::log(1e-5))
        << null.name << ": " << alarms << " of " << kRuns;
    EXPECT_LE(findings, alarms);
  }
}

INSTANTIATE_TEST_SUITE_P(Bias, Level, ::testing::Values(0.05, 0.01), [](const auto& p) {
  return p.param == 0.05 ? "FivePercent" : "OnePercent";
});

// Returns the wealth, computed from the definition by direct products.
double PlainWealth(const std::vector<double>& errors) {
  double sum = 0;
  for (double sign : {-1.0, 1.0}) {
    for (double scale : {1.0, 4.0, 16.0, 64.0}) {
      for (double bet : {.05, .1, .2, .4, .7}) {
        double product = 1;
        for (double e : errors) {
          const double b = .05 / scale;
          product *= 1 + bet * (std::clamp(sign * e / scale, -1.0, 1.0) - b) / (1 + b);
        }
        sum += product;
      }
    }
  }
  return sum / 40;
}

TEST(BiasStream, WealthIsTheDefinition) {
  Rng rng(3);
  std::normal_distribution<double> normal(-0.2, 3);
  std::vector<double> errors(100);
  for (double& e : errors) e = normal(rng);
  BiasStream stream(1e-6);
  stream.Add(errors, std::nullopt);
  EXPECT_NEAR(stream.log_wealth(), std::log(PlainWealth(errors)), 1e-9);
  const double sides = (std::exp(stream.log_wealth(BiasSide::kTooLarge)) +
                        std::exp(stream.log_wealth(BiasSide::kTooSmall))) /
                       2;
  EXPECT_NEAR(std::log(sides), stream.log_wealth(), 1e-9);
  EXPECT_TRUE(stream.population_unknown());
}

// Tests that if chance is against the budget, the bets shrink, but never below those of an infinite
// population.
TEST(BiasStream, DrawsWithoutReplacementBetNoMoreThanWithIt) {
  const std::vector<double> down_then_up = {-1, -1, -1, -1, 1, 1, 1, 1};
  BiasStream endless(1e-6), all(1e-6), many(1e-6);
  endless.Add(down_then_up, std::nullopt);
  all.Add(down_then_up, 8);
  many.Add(down_then_up, 1000000000);
  EXPECT_LT(all.log_wealth(BiasSide::kTooLarge), endless.log_wealth(BiasSide::kTooLarge));
  EXPECT_NEAR(many.log_wealth(), endless.log_wealth(), 1e-6);
  // More samples than elements is an invalid count: the budget of an infinite population.
  BiasStream wrong(1e-6);
  wrong.Add(down_then_up, 2);
  EXPECT_TRUE(std::isfinite(wrong.log_wealth()));
}

TEST(BiasStream, LongRunsNeitherOverflowNorForget) {
  BiasStream stream(1e-6);
  const std::vector<double> silent(100000, 0.0);
  stream.Add(silent, std::nullopt);
  EXPECT_FALSE(stream.alarmed());
  const double low = stream.log_wealth(BiasSide::kTooSmall);
  EXPECT_TRUE(std::isfinite(low));
  const std::vector<double> biased(2000000, -100.0);
  stream.Add(biased, std::nullopt);
  EXPECT_TRUE(stream.alarmed(BiasSide::kTooSmall));
  EXPECT_FALSE(stream.alarmed(BiasSide::kTooLarge));
  EXPECT_GT(stream.log_wealth(), 800000);  // 2e6 ln(1 + .7 (1 - b) / (1 + b)) at the widest scale
  EXPECT_TRUE(std::isfinite(stream.log_wealth()));
  EXPECT_LT(stream.log_wealth(BiasSide::kTooLarge), -10000);
  EXPECT_EQ(stream.alarm_step(), 2u);
}

TEST(BiasStream, AlarmIsSticky) {
  BiasStream stream(1e-6);
  stream.Add(std::vector<double>(60, -1.0), std::nullopt);
  ASSERT_TRUE(stream.alarmed());
  const uint64_t sample = stream.alarm_sample();
  EXPECT_GT(sample, 30u);  // 40e6 at ln(1 + .7 * .95 / 1.05) per sample: at least 36
  EXPECT_LE(sample, 45u);
  stream.Add(std::vector<double>(10000, 1.0), std::nullopt);
  EXPECT_EQ(stream.alarm_sample(), sample);
  EXPECT_TRUE(stream.alarmed(BiasSide::kTooSmall));
}

// Tests errors that are too small on average if clipped at one ulp, and too large if not clipped:
// the first alarms, and no finding may state "too small".
TEST(BiasStream, NoFindingAgainstTheUnclippedMean) {
  Rng rng(9);
  BiasStream stream(1e-6);
  std::vector<double> errors;
  for (int i = 0; i < 4000; ++i) errors.push_back(rng() % 5 == 0 ? 40.0 : -1.0);
  stream.Add(errors, std::nullopt);
  EXPECT_TRUE(stream.alarmed(BiasSide::kTooSmall));
  EXPECT_GT(stream.mean(), 5);
  EXPECT_EQ(stream.side(), BiasSide::kTooLarge);  // the wide scales alarm on that side
  BiasStream narrow(1e-6);
  for (double& e : errors) e = e > 0 ? 4.5 : -1;  // mean +.1, too wide an interval for either side
  errors.resize(200);
  narrow.Add(errors, std::nullopt);
  EXPECT_NE(narrow.side(), BiasSide::kTooSmall);
}

TEST(BiasStream, LevelsBySize) {
  BiasStream small(1e-6), large(1e-6), none(1e-6);
  std::vector<double> errors;
  for (int i = 0; i < 2000; ++i) errors.push_back(i % 2 == 0 ? -1 : 0);
  small.Add(errors, std::nullopt);
  EXPECT_EQ(small.level(), v1::LEVEL_WARNING);
  EXPECT_EQ(small.side(), BiasSide::kTooSmall);
  EXPECT_NEAR(small.mean(), -0.5, 1e-12);
  EXPECT_NEAR(small.high(), -0.5 + 4.9 * 0.5 / std::sqrt(2000), 1e-3);
  for (double& e : errors) e *= 4;
  large.Add(errors, std::nullopt);
  EXPECT_EQ(large.level(), v1::LEVEL_ERROR);
  none.Add(std::vector<double>(1000, 0.0), std::nullopt);
  EXPECT_EQ(none.level(), v1::LEVEL_UNSPECIFIED);
}

TEST(BiasStream, NaNNeverPoisons) {
  BiasStream clean(1e-6), poisoned(1e-6);
  std::vector<double> errors(300, -0.5);
  clean.Add(errors, std::nullopt);
  errors.insert(errors.begin() + 7, {NAN, INFINITY, -INFINITY});
  poisoned.Add(errors, std::nullopt);
  EXPECT_EQ(poisoned.refused(), 3u);
  EXPECT_EQ(poisoned.count(), 300u);
  EXPECT_EQ(poisoned.mean(), clean.mean());
  EXPECT_EQ(poisoned.log_wealth(), clean.log_wealth());
  BiasStream only(1e-6);
  only.Add(std::vector<double>(10, NAN), 10);
  EXPECT_EQ(only.steps(), 0u);
  EXPECT_TRUE(std::isnan(only.mean()));
  EXPECT_EQ(only.level(), v1::LEVEL_UNSPECIFIED);
}

// Tests steps whose elements have a common error: after a few steps, the interval is that of the
// steps.
TEST(BiasStream, SharedErrorsWidenTheInterval) {
  Rng rng(5);
  BiasStream shared(1e-6), apart(1e-6);
  std::normal_distribution<double> normal;
  for (int t = 0; t < 40; ++t) {
    const double e = normal(rng);
    shared.Add(std::vector<double>(100, e), 100);
    std::vector<double> own(100);
    for (double& v : own) v = normal(rng);
    apart.Add(own, 100);
  }
  EXPECT_GT(shared.half_width(), 4.9 * 0.6 / std::sqrt(40));
  EXPECT_LT(apart.half_width(), 4.9 * 1.5 / std::sqrt(4000));
  EXPECT_EQ(shared.side(), BiasSide::kNone);
}

TEST(BiasStream, ZeroSumsCountInRmsAndMisroundRateOnly) {
  SumErrors errors;
  errors.judged = {0, 0, 3};
  errors.zero_sum = {4};
  errors.misrounded = 2;
  BiasStream stream(1e-6);
  stream.Add(errors, 100);
  EXPECT_EQ(stream.count(), 3u);
  EXPECT_DOUBLE_EQ(stream.mean(), 1);
  EXPECT_DOUBLE_EQ(stream.rms(), 2.5);
  EXPECT_DOUBLE_EQ(stream.misround_rate(), 0.5);
}

TEST(BiasStream, NothingIsSpentOnAnAlphaOfZero) {
  BiasStream stream(0);
  stream.Add(std::vector<double>(100000, -1.0), std::nullopt);
  EXPECT_FALSE(stream.alarmed());
}

}  // namespace
}  // namespace plumbline::analysis
