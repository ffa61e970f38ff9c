// Losses whose rate restarts by its schedule, and losses around zero: which of their faults are
// reported, and that others are reported as usual.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "rules/engine/engine.h"
#include "tests/support/batches.h"

namespace plumbline::rules::testing {
namespace {

using Course = std::function<double(int64_t step)>;

struct Rated {
  Course rate;    // empty if no rate is reported
  Course factor;  // of the loss
  int64_t points = 0;
  int64_t resume = INT64_MAX;  // from this step on it is attempt 1
};

// Returns the findings, in the order in which they are reported.
std::vector<v1::Finding> FindingsOf(const Rated& run, const Course& loss) {
  std::vector<v1::Finding> found;
  auto engine = Engine::Create({.rules = {"health/loss-*"}}, [&](const v1::Verdict& verdict) {
    if (verdict.kind() != v1::Verdict::KIND_FINDING) return;
    if (verdict.rule() == "health/loss-stall") return;
    found.push_back(verdict.finding());
  });
  EXPECT_TRUE(engine.ok());
  for (int64_t step = 0; step < run.points; ++step) {
    v1::Batch batch = test::BatchOf(test::SourceOf("r", 0, 1, step >= run.resume ? 1 : 0));
    test::AddScalar(&batch, "loss", step, loss(step));
    if (run.rate) test::AddScalar(&batch, "lr", step, run.rate(step));
    test::AddProgress(&batch, step);
    EXPECT_TRUE((*engine)->Add(std::move(batch)).ok());
  }
  (*engine)->Finish();
  return found;
}

v1::Level Worst(const std::vector<v1::Finding>& found) {
  v1::Level worst = v1::LEVEL_UNSPECIFIED;
  for (const v1::Finding& finding : found) worst = std::max(worst, finding.level());
  return worst;
}

constexpr double kMost = 0.1, kLeast = 1e-4;

Course Cosine(int64_t period) {
  return [period](int64_t step) {
    const double phase = static_cast<double>(step % period) / static_cast<double>(period);
    return kLeast + (kMost - kLeast) * (1 + std::cos(std::numbers::pi * phase)) / 2;
  };
}

// Returns a loss that rises with the rate, and follows it within a few points.
std::vector<double> Losses(const Rated& run, const Course& rate, double height, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> noise(0, 0.04);
  std::vector<double> losses;
  double follows = 1;
  for (int64_t step = 0; step < run.points; ++step) {
    follows += (std::pow(rate(step) / kMost, 0.6) - follows) / 4;
    const double base = 0.25 + 1.5 * std::exp(-static_cast<double>(step) / 60);
    const double factor = run.factor ? run.factor(step) : 1;
    losses.push_back(base * (1 + height * follows) * factor * std::exp(noise(random)));
  }
  return losses;
}

std::vector<v1::Finding> Judged(const Rated& run, const Course& rate, double height,
                                uint64_t seed) {
  const std::vector<double> losses = Losses(run, rate, height, seed);
  return FindingsOf(run, [&](int64_t step) { return losses[static_cast<size_t>(step)]; });
}

TEST(LossRestarts, HoweverHighItIsANoteThatNamesTheRestart) {
  int named = 0, warned = 0, runs = 0;
  for (const int64_t period : {60, 150, 400}) {
    for (const double height : {0.5, 1.5, 4.0}) {
      for (uint64_t seed = 1; seed <= 4; ++seed, ++runs) {
        const Rated run{.rate = Cosine(period), .points = 4 * period};
        const std::vector<v1::Finding> found = Judged(run, run.rate, height, seed);
        warned += Worst(found) >= v1::LEVEL_WARNING ? 1 : 0;
        named += std::any_of(found.begin(), found.end(), [](const v1::Finding& f) {
          return f.explanation().find("the learning rate restarted in step") != std::string::npos;
        });
      }
    }
  }
  EXPECT_LE(warned, 1);
  EXPECT_GE(named, runs / 2);
}

// The rate returns to its former value, but the loss does not.
TEST(LossRestarts, WhatDoesNotComeBackWithTheRateIsReported) {
  for (const int64_t period : {60, 150, 400}) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      Rated run{.rate = Cosine(period), .points = 4 * period};
      run.factor = [=](int64_t step) { return step < 2 * period ? 1.0 : 2.5; };
      const std::vector<v1::Finding> found = Judged(run, run.rate, 1, seed);
      EXPECT_EQ(Worst(found), v1::LEVEL_ERROR) << period << " " << seed;
    }
  }
}

// A fault that the restart does not explain: late in the cycle, or NaN.
TEST(LossRestarts, OtherFaultsOfTheCycleAreReportedAsEver) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Rated run{.rate = Cosine(400), .points = 1600};
    const auto at = [&](int64_t from, int64_t to, double factor) {
      run.factor = [=](int64_t step) { return step >= from && step < to ? factor : 1.0; };
      return Worst(Judged(run, run.rate, 1, seed));
    };
    EXPECT_GE(at(1050, 1070, 3), v1::LEVEL_WARNING) << seed;
    EXPECT_EQ(at(805, 815, NAN), v1::LEVEL_ERROR) << seed;
  }
}

// A jump at the same place, but the rate does not restart as a schedule does.
TEST(LossRestarts, OtherRatesExplainNothing) {
  const auto falls = [](int64_t step) { return 0.1 * std::exp(-static_cast<double>(step) / 100); };
  const Course none, constant = [](int64_t) { return 0.01; };
  const Course slip = [](int64_t step) { return step < 300 ? 0.01 : 0.1; };
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const auto worst = [&](const Course& rate, int64_t resume) {
      Rated run{.rate = rate, .points = 700, .resume = resume};
      run.factor = [](int64_t step) { return step >= 300 && step < 400 ? 2.5 : 1.0; };
      return Worst(Judged(run, constant, 0, seed));
    };
    EXPECT_GE(worst(none, INT64_MAX), v1::LEVEL_WARNING) << seed;
    EXPECT_GE(worst(falls, INT64_MAX), v1::LEVEL_WARNING) << seed;
    EXPECT_GE(worst(slip, INT64_MAX), v1::LEVEL_WARNING) << seed;
    // A resume that resets the rate.
    const Course again = [&](int64_t step) { return falls(step < 300 ? step : step - 300); };
    EXPECT_GE(worst(again, 300), v1::LEVEL_WARNING) << seed;
    EXPECT_LT(worst(again, INT64_MAX), v1::LEVEL_WARNING) << seed;
  }
}

// The likelihood of a flow, which crosses zero as it falls.
double Likelihood(int64_t step) { return 3.5 - 5 * (1 - std::pow(1.0 + step, -0.35)); }

std::vector<v1::Finding> JudgedAroundZero(const Course& mean, double noise, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, noise);
  return FindingsOf({.points = 700}, [&](int64_t step) { return mean(step) + normal(random); });
}

TEST(LossAroundZero, AJumpIsReportedBeforeMuchWasSeen) {
  for (const int64_t at : {60, 100, 133, 160, 300}) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const auto jumps = [at](int64_t step) { return Likelihood(step) + (step < at ? 0 : 3); };
      EXPECT_GE(Worst(JudgedAroundZero(jumps, 0.08, seed)), v1::LEVEL_WARNING) << at << " " << seed;
    }
  }
}

// A penalty that is 0 at first and grows as the policy moves; a bound that falls below 0.
TEST(LossAroundZero, WhatGrowsFromZeroIsNoJump) {
  const Course courses[] = {
      Likelihood,
      [](int64_t step) { return 0.08 * (1 - std::exp(-static_cast<double>(step) / 200)); },
      [](int64_t step) { return 25 * std::exp(-static_cast<double>(step) / 100) - 1; },
  };
  for (size_t course = 0; course < std::size(courses); ++course) {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      const double noise = course == 1 ? 0.002 : 0.08;
      std::vector<v1::Finding> found = JudgedAroundZero(courses[course], noise, seed);
      // A long rise is reported as a drift.
      std::erase_if(found, [](const v1::Finding& f) { return f.rule() != "health/loss-spike"; });
      EXPECT_LT(Worst(found), v1::LEVEL_WARNING) << course << " " << seed;
    }
  }
}

}  // namespace
}  // namespace plumbline::rules::testing
