// Tests errors of simulated collectives against the figures on the rule pages.
#include "analysis/collective/errors.h"

#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "analysis/collective/growth.h"
#include "analysis/statistics/bias_stream.h"
#include "tests/rules/support/simulated_reduction.h"

namespace plumbline::analysis {
namespace {

using rules::testing::ReductionSpec;
using rules::testing::SimulateReduction;

// Returns the relative bias in per cent of sums over 2,048 elements.
double BiasPercent(const std::string& model, int ranks, double spread, double identical = 0,
                   DType dtype = DType::kBF16) {
  ReductionSpec s;
  s.model = model;
  s.ranks = ranks;
  s.spread = spread;
  s.identical = identical;
  s.dtype = dtype;
  s.samples = 1024;
  s.count = 1 << 28;
  RelativeErrorSum sum;
  sum.Take(SimulateReduction(s));
  return 100 * sum.Get().mean;
}

TEST(Figures, Bf16RingsByRanks) {
  const double at_64 = BiasPercent("ring", 64, .3);
  const double at_256 = BiasPercent("ring", 256, .3);
  const double at_512 = BiasPercent("ring", 512, .3);
  const double at_1024 = BiasPercent("ring", 1024, .3);
  const double noise_512 = BiasPercent("ring", 512, 3);
  const double same_256 = BiasPercent("ring", 256, .3, 1);
  const double same_1024 = BiasPercent("ring", 1024, .3, 1);
  const double tree_1024 = BiasPercent("tree", 1024, .3);
  RecordProperty("bf16_ring",
                 absl::StrCat("64 ", at_64, ", 256 ", at_256, ", 512 ", at_512, ", 1024 ", at_1024,
                              "; sigma/mu 3 512 ", noise_512, "; identical 256 ", same_256,
                              ", 1024 ", same_1024, "; tree 1024 ", tree_1024));
  EXPECT_NEAR(at_64, 0, .1);
  EXPECT_NEAR(at_256, 2.7, .5);
  EXPECT_NEAR(at_512, -13, 1.5);
  EXPECT_NEAR(at_1024, -48, 3);
  EXPECT_NEAR(noise_512, -.1, .3);
  EXPECT_GT(same_256, .5);
  EXPECT_LT(same_256, 2.5);
  EXPECT_NEAR(same_1024, -64, 4);
  EXPECT_NEAR(tree_1024, 0, .05);
}

TEST(Figures, HonestSumsHaveNoBias) {
  for (const int ranks : {3, 4, 8, 64}) {
    ReductionSpec s;
    s.ranks = ranks;
    s.samples = 4096;
    s.model = "fp32";
    for (const double e : ErrorsOfOutputs(SimulateReduction(s)).judged) EXPECT_EQ(e, 0);
    s.model = "ring";
    s.dtype = ranks > 8 ? DType::kBF16 : DType::kF16;
    double mean = 0;
    const SumErrors errors = ErrorsOfOutputs(SimulateReduction(s));
    for (const double e : errors.judged) mean += e / static_cast<double>(errors.judged.size());
    EXPECT_NEAR(mean, 0, ranks > 8 ? .1 : .06) << ranks;  // 4.9 standard errors
  }
}

// The relative error of bf16(1/N).
TEST(Figures, RoundedReciprocals) {
  for (const int n : {3, 6, 9, 12, 24, 48, 96, 384})
    EXPECT_NEAR(RoundToFormat(1.0 / n, DType::kBF16) * n - 1, .00195, 1e-5) << n;
  for (const int n : {7, 14, 28, 56})
    EXPECT_NEAR(RoundToFormat(1.0 / n, DType::kBF16) * n - 1, -.00195, 1e-5) << n;
  for (const int n : {15, 30, 60})
    EXPECT_NEAR(RoundToFormat(1.0 / n, DType::kBF16) * n - 1, .0034, 1e-4) << n;
}

TEST(Growth, FindsWhereRingsBreak) {
  ReductionSpec s;
  s.ranks = 4;
  for (const auto& [dtype, at] : {std::pair{DType::kF16, 2048}, std::pair{DType::kBF16, 256}}) {
    s.dtype = dtype;
    const ReductionCase c = SimulateReduction(s);
    const ReductionReplay replay = ReplayReduction(c);
    ASSERT_TRUE(replay.narrow_partials);
    EXPECT_EQ(GrowReduction(c, replay).breaks_at(), at) << DTypeName(dtype);
  }
  s.model = "tree";
  const ReductionCase c = SimulateReduction(s);
  EXPECT_EQ(GrowReduction(c, ReplayReduction(c)).breaks_at(), 0);
}

TEST(Growth, PredictsFromDTypeAndRanks) {
  EXPECT_TRUE(PredictRing(DType::kBF16, 512).beyond_budget());
  EXPECT_LT(PredictRing(DType::kBF16, 512).mean, -10);
  EXPECT_FALSE(PredictRing(DType::kBF16, 16).beyond_budget());
  EXPECT_FALSE(PredictRing(DType::kF16, 64).beyond_budget());
}

TEST(Poison, NonFiniteColumnsAreSetAside) {
  ReductionSpec s;
  s.non_finite = .5;
  s.samples = 400;
  const ReductionCase c = SimulateReduction(s);
  const SumErrors errors = ErrorsOfOutputs(c);
  EXPECT_GT(errors.aside, 120u);
  EXPECT_EQ(errors.judged.size() + errors.zero_sum.size() + errors.aside, 400u);
  for (const double e : errors.judged) EXPECT_TRUE(std::isfinite(e));
  RelativeErrorSum sum;
  sum.Take(c);
  EXPECT_TRUE(std::isfinite(sum.Get().mean));
  EXPECT_EQ(sum.Get().samples, 400 - errors.aside - errors.zero_sum.size());
}

TEST(Errors, CancellingSumsDoNotExplode) {
  ReductionSpec s;
  s.mean = 0;
  s.spread = 1;
  s.ranks = 16;
  s.samples = 4096;
  for (const double e : ErrorsOfOutputs(SimulateReduction(s)).judged) EXPECT_LT(std::fabs(e), 16);
}

}  // namespace
}  // namespace plumbline::analysis
