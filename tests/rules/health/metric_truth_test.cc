// Tests health/metric-truth on simulated trainings: loggers that are right, or log another
// quantity, stay silent; factors and clipped norms are found. Twenty-five times as many if
// PLUMB_LONG=1.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "tests/rules/support/verdicts.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

constexpr char kRule[] = "health/metric-truth";
using Random = std::mt19937_64;

uint64_t Trainings() { return std::getenv("PLUMB_LONG") != nullptr ? 500 : 20; }

// The measured values of one rank, by step.
struct Measured {
  std::vector<double> loss, norm, rate;
};

// A training of `steps` steps: the loss falls, the norm scatters, the rate warms up and decays.
Measured Simulate(Random& random, int steps) {
  std::normal_distribution<double> normal;
  const double spread = 0.02 + 0.1 * std::generate_canonical<double, 32>(random);
  Measured out;
  for (int s = 0; s < steps; ++s) {
    out.loss.push_back((2 + 6 / (1 + 0.05 * s)) * std::exp(spread * normal(random)));
    out.norm.push_back(std::exp(0.3 + 0.4 * normal(random)));
    out.rate.push_back(3e-4 * std::min(1.0, 0.1 + 0.02 * s) * (1 - 0.8 * s / steps));
  }
  return out;
}

struct Logger {
  const char* name;  // of the logged series
  int every = 1;     // steps between two calls
  uint32_t ranks = 1;
  int passes = 1;
  // Returns the value that rank 0 logs in a step (of the ranks' measured values); NaN: a NaN.
  std::function<double(const std::vector<Measured>&, int step, Random&)> value;
  double scale = 0;  // that a scaler holds; 0: there is none
};

testing::Verdicts Judged(const Logger& logger, uint64_t seed) {
  Random random(seed);
  const int steps = 40 * logger.every;
  std::vector<Measured> ranks;
  v1::Batch batch;
  for (uint32_t rank = 0; rank < logger.ranks; ++rank) {
    ranks.push_back(Simulate(random, steps));
    *batch.add_sources() = test::SourceOf("r", rank, logger.ranks);
  }
  const auto add = [&](const std::string& name, int step, double value, uint32_t rank) {
    test::AddScalar(&batch, name, step, value).set_source(rank);
  };
  for (int s = 0; s < steps; ++s) {
    for (uint32_t rank = 0; rank < logger.ranks; ++rank) {
      add("loss", s, ranks[rank].loss[static_cast<size_t>(s)], rank);
      add("grad_norm", s, ranks[rank].norm[static_cast<size_t>(s)], rank);
      add("lr", s, ranks[rank].rate[static_cast<size_t>(s)], rank);
      if (logger.scale > 0) add("loss_scale", s, logger.scale, rank);
    }
    if ((s + 1) % logger.every != 0) continue;
    add("logged/.every", s, logger.every, 0);
    add("logged/.passes", s, logger.passes, 0);
    add(std::string("logged/") + logger.name, s, logger.value(ranks, s, random), 0);
  }
  return testing::VerdictsOf(kRule, {batch});
}

double Norm(const std::vector<Measured>& ranks, int s) {
  return ranks[0].norm[static_cast<size_t>(s)];
}
double Loss(const std::vector<Measured>& ranks, int s) {
  return ranks[0].loss[static_cast<size_t>(s)];
}
double MeanLoss(const std::vector<Measured>& ranks, int s, int every) {
  double sum = 0;
  for (int i = s - every + 1; i <= s; ++i) sum += Loss(ranks, i);
  return sum / every;
}
double Decimals(double value, int decimals) {
  const double unit = std::pow(10.0, -decimals);
  return std::round(value / unit) * unit;
}
double OverRanks(const std::vector<Measured>& ranks, int s) {
  double sum = 0;
  for (const Measured& one : ranks) sum += one.loss[static_cast<size_t>(s)];
  return sum / static_cast<double>(ranks.size());
}

TEST(MetricTruth, RightLoggersPass) {
  const std::vector<Logger> loggers = {
      {"train/loss", 1, 1, 1, [](const auto& r, int s, Random&) { return Loss(r, s); }},
      {"loss", 10, 1, 1, [](const auto& r, int s, Random&) { return MeanLoss(r, s, 10); }},
      {"loss", 10, 1, 4,
       [](const auto& r, int s, Random&) { return Decimals(MeanLoss(r, s, 10), 4); }},
      {"loss", 5, 1, 1, [](const auto& r, int s, Random&) { return Decimals(Loss(r, s), 2); }},
      {"loss", 1, 1, 1,
       [](const auto& r, int s, Random&) { return RoundToFormat(Loss(r, s), DType::kBF16); }},
      {"loss", 3, 1, 1, [](const auto& r, int s, Random&) { return Loss(r, s - 1); }},
      {"train_loss", 1, 4, 1, [](const auto& r, int s, Random&) { return OverRanks(r, s); }},
      {"grad_norm", 1, 8, 1, [](const auto& r, int s, Random&) { return Norm(r, s); }},
      {"grad_norm", 20, 1, 1, [](const auto& r, int s, Random&) { return Norm(r, s - 1); }},
      {"lr", 1, 1, 1,
       [](const auto& r, int s, Random&) {
         return r[0].rate[std::min(static_cast<size_t>(s) + 1, r[0].rate.size() - 1)];
       }},
  };
  for (const Logger& logger : loggers) {
    for (uint64_t seed = 1; seed <= Trainings(); ++seed) {
      const v1::Verdict verdict = testing::Only(Judged(logger, seed), kRule);
      EXPECT_EQ(verdict.kind(), v1::Verdict::KIND_PASS)
          << logger.name << " every " << logger.every << " of " << logger.ranks << " ranks, "
          << logger.passes << " passes, seed " << seed << ": " << verdict.reason()
          << verdict.finding().explanation();
    }
  }
}

TEST(MetricTruth, OtherQuantitiesAreNotAccused) {
  double smooth = 0;
  const std::vector<Logger> loggers = {
      {"loss", 1, 2, 1,
       [&](const auto& r, int s, Random&) {
         smooth = s == 0 ? Loss(r, 0) : 0.9 * smooth + 0.1 * Loss(r, s);
         return smooth;
       }},
      {"loss", 1, 2, 2,
       [](const auto& r, int s, Random& random) {
         return 0.5 * Loss(r, s) * std::exp(0.02 * std::normal_distribution<double>()(random));
       }},
      {"loss", 1, 2, 2, [](const auto& r, int s, Random&) { return Loss(r, s) - 0.7; }},
      {"grad_norm", 1, 4, 1,
       [](const auto&, int, Random& random) {  // of other parameters
         return std::exp(0.3 + 0.4 * std::normal_distribution<double>()(random));
       }},
      {"grad_norm", 1, 4, 1,
       [](const auto& r, int s, Random& random) {
         return Norm(r, s) / 2 * (1 + 0.1 * std::generate_canonical<double, 32>(random));
       }},
      {"loss", 1, 2, 1,
       [](const auto&, int, Random&) { return std::numeric_limits<double>::quiet_NaN(); }},
      {"loss", 1, 2, 1, [](const auto&, int, Random&) { return 0.0; }},
      // Without a part of the loss whose share moves slowly.
      {"ce_loss", 1, 1, 4,
       [](const auto& r, int s, Random&) { return Loss(r, s) * (0.955 + 0.0006 * s); }},
      // Right if the micro-batches are not divided by their number.
      {"loss", 1, 1, 4, [](const auto& r, int s, Random&) { return Loss(r, s) / 4; }},
  };
  for (const Logger& logger : loggers) {
    for (uint64_t seed = 1; seed <= Trainings(); ++seed) {
      for (const v1::Verdict& verdict : Judged(logger, seed))
        EXPECT_EQ(verdict.kind(), v1::Verdict::KIND_INCONCLUSIVE)
            << logger.name << " seed " << seed << ": " << verdict.finding().explanation();
    }
  }
}

struct Wrong {
  Logger logger;
  const char* cause;
  v1::Level level;
};

TEST(MetricTruth, FactorsAndClippedNormsAreFound) {
  const auto times = [](double factor) {
    return [factor](const auto& r, int s, Random&) { return factor * Norm(r, s); };
  };
  const std::vector<Wrong> all = {
      {{"grad_norm", 1, 8, 1, times(8)}, "ranks", v1::LEVEL_WARNING},
      {{"grad_norm", 1, 8, 1, times(1 / std::sqrt(8))}, "ranks", v1::LEVEL_WARNING},
      {{"grad_norm", 5, 2, 1, times(0.5)}, "ranks", v1::LEVEL_WARNING},
      {{"grad_norm", 1, 1, 4, times(4)}, "micro-batches", v1::LEVEL_WARNING},
      {{"gnorm", 1, 1, 1, times(65536), 65536}, "loss-scale", v1::LEVEL_WARNING},
      // Without a scaler, a power of two is a sum over pixels.
      {{"recon_loss", 1, 1, 1, [](const auto& r, int s, Random&) { return 1024 * Loss(r, s); }},
       "constant-factor",
       v1::LEVEL_NOTE},
      // Half of the mean squared error is a usual loss, and its double a usual log.
      {{"mse_loss", 1, 1, 4, [](const auto& r, int s, Random&) { return 2 * Loss(r, s); }},
       "constant-factor",
       v1::LEVEL_NOTE},
      {{"mse_loss", 1, 2, 1, [](const auto& r, int s, Random&) { return 2 * OverRanks(r, s); }},
       "ranks",
       v1::LEVEL_NOTE},
      {{"grad_norm", 1, 1, 1, times(1.067)}, "constant-factor", v1::LEVEL_NOTE},
      {{"loss", 10, 1, 4,
        [](const auto& r, int s, Random&) { return Decimals(4 * MeanLoss(r, s, 10), 4); }},
       "micro-batches",
       v1::LEVEL_WARNING},
      {{"loss", 1, 4, 1, [](const auto& r, int s, Random&) { return 4 * OverRanks(r, s); }},
       "ranks",
       v1::LEVEL_WARNING},
      {{"lr", 1, 1, 1,
        [](const auto& r, int s, Random&) { return 10 * r[0].rate[static_cast<size_t>(s)]; }},
       "constant-factor",
       v1::LEVEL_NOTE},
      {{"grad_norm", 1, 1, 1,
        [](const auto& r, int s, Random&) { return std::min(1.0, Norm(r, s)); }},
       "after-clip",
       v1::LEVEL_NOTE},
  };
  for (const Wrong& wrong : all) {
    for (uint64_t seed = 1; seed <= Trainings(); ++seed) {
      const testing::Verdicts verdicts = Judged(wrong.logger, seed);
      EXPECT_EQ(testing::Findings(verdicts, kRule, wrong.cause), 1)
          << wrong.logger.name << " " << wrong.cause << " seed " << seed << ": "
          << (verdicts.empty() ? "" : verdicts[0].reason() + verdicts[0].finding().explanation());
      EXPECT_EQ(testing::Highest(verdicts), wrong.level) << wrong.cause;
    }
  }
}

TEST(MetricTruth, ValuesOfOneDigitAreInconclusive) {
  Random random(5);
  const Measured measured = Simulate(random, 40);
  v1::Batch batch = test::BatchOf(test::SourceOf("r", 0, 2));
  for (int s = 0; s < 40; ++s) {
    const double norm = measured.norm[static_cast<size_t>(s)];
    test::AddScalar(&batch, "grad_norm", s, norm);
    test::AddScalar(&batch, "logged/grad_norm", s, std::max(1.0, Decimals(norm / 2, 0)));
  }
  const auto verdict = testing::Only(testing::VerdictsOf(kRule, {batch}), kRule);
  EXPECT_EQ(testing::Outcome(verdict), "few-digits");
}

TEST(MetricTruth, FewLoggedValuesAreInconclusive) {
  v1::Batch batch = test::BatchOf(test::SourceOf("r", 0, 2));
  for (int s = 0; s < 7; ++s) {
    test::AddScalar(&batch, "grad_norm", s, 1 + 0.1 * s);
    test::AddScalar(&batch, "logged/grad_norm", s, 2 + 0.2 * s);
  }
  const auto verdict = testing::Only(testing::VerdictsOf(kRule, {batch}), kRule);
  EXPECT_EQ(testing::Outcome(verdict), "few-steps");
}

v1::Verdict OfTwoGroups(double factor) {
  v1::Batch batch = test::BatchOf(test::SourceOf("r"));
  for (int s = 0; s < 40; ++s) {
    test::AddScalar(&batch, "logged/lr", s, 0.01 * (1 + s));
    test::AddScalar(&batch, "lr", s, 0.01 * (1 + s));
    test::AddScalar(&batch, "lr.1", s, factor * 0.01 * (1 + s));
  }
  return testing::Only(testing::VerdictsOf(kRule, {batch}), kRule);
}

TEST(MetricTruth, RatesOfGroupsThatDifferAreNotCompared) {
  EXPECT_EQ(testing::Outcome(OfTwoGroups(10)), "several-groups");
  EXPECT_EQ(testing::Outcome(OfTwoGroups(1)), "pass");
}

}  // namespace
}  // namespace plumbline::rules
