// Tests the replay machine against sums of single exact operations, and its bounds.
#include "analysis/product/machine.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <iostream>
#include <random>

#include "analysis/product/candidates.h"
#include "analysis/product/lanes.h"
#include "base/avx2.h"
#include "tests/rules/support/simulated_matmul.h"

namespace plumbline::analysis {
namespace {

using rules::testing::Factors;
using rules::testing::MatmulSpec;
using rules::testing::ReferenceSum;
using rules::testing::SimulatedMatmul;
using rules::testing::Values;

constexpr Values kAllValues[] = {Values::kNormal,     Values::kPositive,  Values::kSpread,
                                 Values::kCancelling, Values::kSubnormal, Values::kIntegers};
constexpr DType kInputs[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2};

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Returns a spec and some of its candidates for a seed.
MatmulSpec RandomSpec(std::mt19937_64& rng, int most_inner) {
  MatmulSpec spec;
  spec.samples = 3;
  spec.inner = 1 + static_cast<int>(rng() % static_cast<uint64_t>(most_inner));
  spec.input = kInputs[rng() % std::size(kInputs)];
  const DType outputs[] = {DType::kF32, DType::kF16, DType::kBF16};
  spec.output = outputs[rng() % 3];
  spec.values = kAllValues[rng() % std::size(kAllValues)];
  spec.addend = rng() % 2 == 0;
  spec.seed = rng();
  return spec;
}

TEST(MatmulMachine, AgreesWithSumsTakenOneByOne) {
  std::mt19937_64 rng(11);
  MatmulMachine machine;
  MatmulTerms terms;
  int compared = 0;
  for (int round = 0; round < 400; ++round) {
    SimulatedMatmul made = Factors(RandomSpec(rng, round % 4 == 0 ? 300 : 40));
    made.d.assign(static_cast<size_t>(made.spec.samples), 0);
    const v1::Matmul evidence = made.Evidence();
    const auto c = DecodeMatmul(evidence);
    ASSERT_TRUE(c.ok()) << c.status();
    std::vector<MatmulModel> models = CandidateModels(*c);
    for (int pick = 0; pick < 24; ++pick) {
      MatmulModel model = models[rng() % models.size()];
      if (model.sum == MatmulModel::Sum::kAligned) model.floored = rng() % 4 == 0;
      const int i = static_cast<int>(rng() % 3);
      terms.Load(*c, i, model.cut);
      ASSERT_TRUE(terms.finite);
      const double expected = ReferenceSum(model, made.RowA(i), made.RowB(i), made.spec.inner,
                                           made.spec.input, made.Addend(i));
      const double found = machine.Sum(model, terms, made.Addend(i));
      ++compared;
      ASSERT_TRUE(Same(expected, found))
          << Words(model) << ", K = " << made.spec.inner << ", " << DTypeName(made.spec.input)
          << ", values " << static_cast<int>(made.spec.values) << ", c " << made.Addend(i) << ": "
          << expected << " against " << found;
    }
  }
  std::cout << compared << " sums\n";
}

TEST(MatmulMachine, SumsSideBySideAreThoseOfEachAlone) {
  std::mt19937_64 rng(13);
  MatmulMachine machine;
  MatmulTerms terms;
  int side_by_side = 0, compared = 0;
  for (int round = 0; round < 1500; ++round) {
    SimulatedMatmul made = Factors(RandomSpec(rng, round % 4 == 0 ? 700 : 70));
    made.d.assign(static_cast<size_t>(made.spec.samples), 0);
    const v1::Matmul evidence = made.Evidence();
    const auto c = DecodeMatmul(evidence);
    ASSERT_TRUE(c.ok()) << c.status();
    MatmulModel model{.sum = MatmulModel::Sum::kAligned};
    model.block = 1 << (rng() % kBlockSizes);
    model.rounding = rng() % 2 == 0 ? RoundingMode::kTowardZero : RoundingMode::kNearestEven;
    model.addend_inside = rng() % 2 == 0;
    model.addend_last = rng() % 3 == 0;
    const int chunk = static_cast<int>(1 + rng() % 200);
    if (rng() % 3 == 0) {
      model.promote = chunk;
    } else if (rng() % 2 == 0) {
      model.part = chunk;
      model.part_dtype = rng() % 2 == 0 ? DType::kF16 : DType::kBF16;
      if (rng() % 2 == 0) model.reduce_dtype = model.part_dtype;
    }
    terms.Load(*c, 0, model.cut);
    std::vector<int> fraction_bits;
    for (uint64_t i = 0; i <= rng() % kAlignedLanes; ++i)
      fraction_bits.push_back(10 + static_cast<int>(rng() % 27));
    std::array<double, kAlignedLanes> sums;
    const double addend = made.Addend(0), start = model.addend_last ? 0 : addend;
    ASSERT_TRUE(FitsLanes(model));
    side_by_side += AlignedRun(model, terms, 0, terms.size, start, fraction_bits, sums.data());
    machine.Sums(model, terms, addend, fraction_bits, sums.data());
    for (size_t i = 0; i < fraction_bits.size(); ++i, ++compared) {
      model.fraction_bits = fraction_bits[i];
      const double alone = machine.Sum(model, terms, addend);
      ASSERT_TRUE(Same(alone, sums[i]))
          << Words(model) << ", K = " << made.spec.inner << ", " << DTypeName(made.spec.input)
          << ", values " << static_cast<int>(made.spec.values) << ", c " << addend << ": " << alone
          << " against " << sums[i];
    }
  }
  std::cout << compared << " sums, side by side in " << side_by_side << " of 1,500 calls\n";
  if (HasAvx2()) {
    EXPECT_GT(side_by_side, 700);
  }
}

TEST(MatmulMachine, NoSumLiesBeyondItsBound) {
  std::mt19937_64 rng(12);
  MatmulMachine machine;
  MatmulTerms terms;
  int bounded = 0;
  double nearest = 0;
  for (int round = 0; round < 600; ++round) {
    SimulatedMatmul made = Factors(RandomSpec(rng, round % 4 == 0 ? 3000 : 60));
    made.d.assign(static_cast<size_t>(made.spec.samples), 0);
    const v1::Matmul evidence = made.Evidence();
    const auto c = DecodeMatmul(evidence);
    ASSERT_TRUE(c.ok()) << c.status();
    const std::vector<MatmulModel> models = CandidateModels(*c);
    for (int pick = 0; pick < 60; ++pick) {
      const MatmulModel& model = models[rng() % models.size()];
      const int i = static_cast<int>(rng() % 3);
      terms.Load(*c, i, model.cut);
      const double bound = ErrorBound(model, terms, made.Addend(i));
      if (!(bound < HUGE_VAL)) continue;
      ExactSum off = terms.exact;
      off.Add(made.Addend(i));
      off.Subtract(machine.Sum(model, terms, made.Addend(i)));
      ++bounded;
      nearest = std::max(nearest, bound == 0 ? 0 : std::abs(off.Value()) / bound);
      ASSERT_LE(std::abs(off.Value()), bound) << Words(model) << ", K = " << made.spec.inner
                                              << ", values " << static_cast<int>(made.spec.values);
    }
  }
  std::cout << bounded << " bounds, the nearest sum at " << nearest << " of its bound\n";
  EXPECT_GT(bounded, 5000);
  EXPECT_GT(nearest, 0.05);  // a bound must be tight
}

TEST(MatmulMachine, AdditionsRoundOnce) {
  std::mt19937_64 rng(13);
  std::normal_distribution<double> normal;
  for (int round = 0; round < 200000; ++round) {
    const auto a = static_cast<float>(std::ldexp(normal(rng), static_cast<int>(rng() % 60) - 30));
    double b = std::ldexp(normal(rng), static_cast<int>(rng() % 80) - 40);
    if (round % 3 == 0) b = std::ldexp(std::round(std::ldexp(b, 30)), -30);
    if (round % 7 == 0) b = -a + b * 1e-9;
    if (round % 11 == 0)
      b = 0.5 * UlpOf(a, DType::kF32) * (1 + 1e-16 * static_cast<double>(round % 5));
    ExactSum sum;
    sum.Add(a);
    sum.Add(b);
    ASSERT_EQ(AddNearest(a, b), sum.RoundTo(DType::kF32)) << a << " + " << b;
    ASSERT_EQ(AddTowardZero(a, b), sum.RoundTo(DType::kF32, RoundingMode::kTowardZero))
        << a << " + " << b;
  }
}

TEST(MatmulMachine, CutsKeepTheirBits) {
  using Cut = InputCut;
  EXPECT_EQ(CutInput(Cut::kTf32Nearest, 1 + 3 * PowerOfTwo(-11)), 1 + PowerOfTwo(-9));
  EXPECT_EQ(CutInput(Cut::kTf32Nearest, 1 + PowerOfTwo(-11)), 1);
  EXPECT_EQ(CutInput(Cut::kTf32Away, 1 + PowerOfTwo(-11)), 1 + PowerOfTwo(-10));
  EXPECT_EQ(CutInput(Cut::kTf32Away, -1 - PowerOfTwo(-11)), -1 - PowerOfTwo(-10));
  EXPECT_EQ(CutInput(Cut::kTf32Zero, -1 - 1.9 * PowerOfTwo(-10)), -1 - PowerOfTwo(-10));
  EXPECT_EQ(CutInput(Cut::kBf16Nearest, 257), 256);
  EXPECT_EQ(CutInput(Cut::kBf16Zero, 259), 258);
  for (const double x : {0.0, 1e-45, -3e-40, 1.0, 3e38}) {
    const double f = static_cast<float>(x);
    EXPECT_EQ(CutInput(Cut::kBf16Nearest, f), RoundToFormat(f, DType::kBF16)) << x;
  }
}

}  // namespace
}  // namespace plumbline::analysis
