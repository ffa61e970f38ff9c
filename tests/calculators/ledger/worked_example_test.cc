// Tests all numbers of the worked example and the limits of its parts.
#include "tests/calculators/ledger/worked_example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "calculators/ledger/selection.h"

namespace plumbline::ledger {
namespace {

using ::testing::HasSubstr;
using testing::WorkedExample;

Estimate Of(const WorkedExample& example) {
  auto estimate = EstimateLedger(example.ledger, example.allowances);
  EXPECT_TRUE(estimate.ok()) << estimate.status();
  return *std::move(estimate);
}

double Low(double ln, double variance) { return std::exp(ln - 1.645 * std::sqrt(variance)); }
double High(double ln, double variance) { return std::exp(ln + 1.645 * std::sqrt(variance)); }

TEST(WorkedExample, NoiseAndBaseline) {
  const Estimate e = Of(WorkedExample());
  EXPECT_NEAR(e.noise, 0.002041, 5e-7);
  EXPECT_EQ(e.freedom, 5);
  EXPECT_NEAR(e.baseline.floor, 1.839, 5e-4);
  EXPECT_NEAR(e.baseline.alpha, 0.1540, 5e-5 + 1e-9);
  EXPECT_NEAR(e.relative_error, 0.00962, 5e-6);
  EXPECT_NEAR(e.gain, 16.80, 5e-3);
  EXPECT_EQ(e.largest_scale, 1e20);
}

TEST(WorkedExample, Multipliers) {
  const Estimate e = Of(WorkedExample());
  const double y[] = {0.0986, 0.0591, 0.1869, 0.1708};
  const double sd[] = {0.0265, 0.0354, 0.0401, 0.0265};
  const double s[] = {0.0937, 0.0536, 0.1632, 0.1625};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(e.multipliers[i].worth.y, y[i], 6e-5) << i;
    EXPECT_NEAR(e.multipliers[i].sd, sd[i], 1e-4) << i;
    EXPECT_NEAR(e.multipliers[i].s, s[i], 6e-5) << i;
  }
}

TEST(WorkedExample, ProductAndStack) {
  const Estimate e = Of(WorkedExample());
  EXPECT_NEAR(e.product.ln, 0.4730, 5e-5);
  EXPECT_NEAR(std::exp(e.product.ln), 1.605, 5e-4);
  EXPECT_NEAR(Low(e.product.ln, e.product.seeds_variance), 1.451, 5e-4);
  EXPECT_NEAR(High(e.product.ln, e.product.seeds_variance), 1.775, 5e-4);
  EXPECT_NEAR(Low(e.product.ln, e.product.all_variance), 1.370, 5e-4);
  EXPECT_NEAR(High(e.product.ln, e.product.all_variance), 1.880, 5e-4);
  ASSERT_TRUE(e.stack.has_value());
  EXPECT_NEAR(std::exp(e.stack->ln), 1.481, 5e-4);
  EXPECT_NEAR(Low(e.stack->ln, e.stack->sd * e.stack->sd), 1.397, 5e-4);
  EXPECT_NEAR(High(e.stack->ln, e.stack->sd * e.stack->sd), 1.570, 5e-4);
  EXPECT_NEAR(std::exp(e.stack->claimed), 1.623, 5e-4);
  EXPECT_NEAR(e.stack->overstated(), 2.58, 5e-3);
}

TEST(WorkedExample, SharedVarianceAndSelection) {
  const Estimate e = Of(WorkedExample());
  Measured measured;
  for (const auto& m : e.multipliers) measured.y.push_back(m.worth.y);
  measured.covariance = e.covariance;
  measured.kept.assign(4, true);
  measured.tried = 9;
  const Selected selected = Select(measured);
  EXPECT_NEAR(selected.shared, 2.790e-4, 5e-8);
  EXPECT_NEAR(selected.variance, 0.007148, 5e-7);
  EXPECT_NEAR(selected.sum, 0.4730, 5e-5);
}

TEST(WorkedExample, Leaks) {
  const WorkedExample example;
  const Leaks leaks = FindLeaks(example.ledger, Of(example), example.allowances);
  EXPECT_NEAR(leaks.threshold, 3.69, 5e-3);
  EXPECT_NEAR(leaks.of[3].z, 7.40, 5e-3);
  EXPECT_TRUE(leaks.of[3].found);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_LE(std::fabs(leaks.of[i].z), 0.26);
    EXPECT_FALSE(leaks.of[i].found);
  }
}

// Tests the recommendation: one more pair for the change with a single pair, farthest from the
// target.
TEST(WorkedExample, NextAblation) {
  const WorkedExample example;
  const Estimate e = Of(example);
  const std::vector<NextRuns> next = RankNextRuns(example.ledger, example.allowances, e);
  ASSERT_FALSE(next.empty());
  EXPECT_EQ(next[0].name, "c");
  EXPECT_EQ(next[0].scale, 1e20);
  EXPECT_EQ(next[0].flops, 2e20);
  for (size_t i = 0; i < next.size(); ++i) {
    EXPECT_GT(next[i].drop(), 0);
    if (i > 0) {
      EXPECT_LE(next[i].drop(), next[i - 1].drop());
    }
  }
}

TEST(WorkedExample, WithoutTheFlagged) {
  const WorkedExample example;
  const Estimate e = Of(example);
  const Product rest =
      ProductWithout(example.ledger, example.allowances, e, {false, false, true, true});
  EXPECT_EQ(rest.factors, 2u);
  EXPECT_LT(rest.ln, e.product.ln);
  EXPECT_NEAR(rest.ln, 0.143, 0.03) << "a and b were worth 0.147 among the others";
  const Product none =
      ProductWithout(example.ledger, example.allowances, e, {true, true, true, true});
  EXPECT_EQ(none.factors, 0u);
  EXPECT_EQ(none.ln, 0);
}

// Tests that for any number of trials, the estimate of a kept change is below its measurement.
TEST(Selection, IsWorthLessThanMeasured) {
  WorkedExample example;
  double measured = 0;
  for (const auto& m : Of(example).multipliers) measured += m.worth.y;
  for (const int64_t tried : {0, 4, 9, 30, 300, 1000000}) {
    example.ledger.tried.reset();
    if (tried > 0) example.ledger.tried = tried;
    const double ln = Of(example).product.ln;
    EXPECT_LT(ln, measured) << tried;
    EXPECT_GT(ln, (tried > 300 ? 0.4 : 0.7) * measured) << tried;
  }
}

// ln Phi in the far tail, at which Phi is 0 in double.
TEST(Selection, LogNormalCdf) {
  EXPECT_NEAR(LogNormalCdf(0), std::log(0.5), 1e-15);
  EXPECT_NEAR(LogNormalCdf(-1.96), std::log(0.024997895), 1e-7);
  EXPECT_NEAR(LogNormalCdf(9) / -1.1285884059538405e-19, 1, 1e-9);
  EXPECT_NEAR(LogNormalCdf(-100), -5005.5242086942, 1e-7);
  // Both formulas agree at the limit.
  EXPECT_NEAR(LogNormalCdf(-30 - 1e-9), LogNormalCdf(-30 + 1e-9), 1e-6);
}

TEST(Cells, UnpairedWhereNoSeedIsShared) {
  std::vector<ledger::Run> runs = {{"w0", 1e19, 0, 3.0, {}}, {"w1", 1e19, 1, 3.1, {}},
                                   {"b5", 1e19, 5, 3.2, {}}, {"b6", 1e19, 6, 3.4, {}},
                                   {"b7", 1e19, 7, 3.3, {}}, {"b1", 1e20, 1, 2.9, {}}};
  std::vector<Cell> cells = CellsOf(runs, {{0, 1}, {2, 3, 4, 5}});
  ASSERT_EQ(cells.size(), 1u) << "only one scale is in both";
  EXPECT_TRUE(cells[0].pairs.empty());
  EXPECT_EQ(cells[0].freedom, 3);
  EXPECT_NEAR(cells[0].spread(), 1.0 / 2 + 1.0 / 3, 1e-15);
  EXPECT_NEAR(cells[0].ln_with, (std::log(3.0) + std::log(3.1)) / 2, 1e-15);
  // One common seed; the others are omitted.
  runs[3].seed = 1;
  cells = CellsOf(runs, {{0, 1}, {2, 3, 4, 5}});
  ASSERT_EQ(cells[0].pairs.size(), 1u);
  EXPECT_EQ(cells[0].pairs[0], (std::pair<size_t, size_t>(1, 3)));
  EXPECT_EQ(cells[0].freedom, 0);
  EXPECT_EQ(cells[0].spread(), 2);
}

TEST(Errors, AreInWords) {
  WorkedExample example;
  const auto error = [&example] {
    return std::string(EstimateLedger(example.ledger, example.allowances).status().message());
  };
  std::vector<size_t> all = example.ledger.baseline;
  example.ledger.baseline = {all[1], all[2]};
  EXPECT_THAT(error(), HasSubstr("at least 2 scales"));
  example.ledger.baseline = all;
  example.ledger.runs[all[5]].loss = 9;  // larger models are worse
  EXPECT_THAT(error(), HasSubstr("falls as a power"));
  example.ledger.runs[all[5]].loss = 2.652;
  example.ledger.multipliers[1].arms.without = {all[1]};
  EXPECT_THAT(error(), HasSubstr("multiplier b"));
  example.ledger.multipliers.clear();
  EXPECT_THAT(error(), HasSubstr("expected a multiplier"));
}

// Tests a run far below the losses of the baseline: no candidate floor may be above it.
TEST(Errors, ALossBelowEveryFloor) {
  WorkedExample example;
  example.ledger.runs[example.ledger.multipliers[1].arms.with[0]].loss = 1.2;
  example.ledger.runs[example.ledger.multipliers[1].arms.with[1]].loss = 1.2;
  const Estimate e = Of(example);
  EXPECT_TRUE(std::isfinite(e.multipliers[1].worth.y));
  EXPECT_LT(e.baseline.floor, 1.2);
  EXPECT_TRUE(std::isfinite(e.product.all_variance));
}

}  // namespace
}  // namespace plumbline::ledger
