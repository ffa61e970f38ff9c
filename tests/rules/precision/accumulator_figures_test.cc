// Measures the figures on the pages of the accumulator rules, and the power of the rules for
// several fault sizes.
#include <gtest/gtest.h>

#include <cmath>

#include "analysis/sums/rounding.h"
#include "analysis/tensor/loss_means.h"
#include "analysis/tensor/position_rows.h"
#include "base/half.h"
#include "kernels/update/check.h"
#include "tests/rules/support/tensor_run.h"
#include "tests/rules/support/update_run.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::Draw;
using testing::Stored;
using testing::TensorRun;
using testing::TensorRunSpec;
using testing::UpdateRun;
using testing::UpdateRunSpec;
using testing::VerdictsOf;

bool Finds(const std::string& rule, v1::Batch batch) {
  const auto verdicts = VerdictsOf(rule, {std::move(batch)});
  return !verdicts.empty() && verdicts[0].kind() == v1::Verdict::KIND_FINDING;
}

// lost-update: weights N(0, 0.02), steps N(0, 1e-5): 88 %; 1e-4: 32 %.
TEST(Figures, ShareOfLostUpdates) {
  for (const auto& [sd, share, applied] :
       {std::tuple{1e-5, 0.883, 0.223}, std::tuple{1e-4, 0.324, 0.936}}) {
    Draw draw(7);
    std::vector<double> w, d, after;
    for (int i = 0; i < 400000; ++i) {
      w.push_back(RoundToFormat(0.02 * draw.Normal(), DType::kBF16));
      d.push_back(static_cast<double>(static_cast<float>(sd * draw.Normal())));
      after.push_back(RoundedSum(w.back(), d.back(), DType::kBF16));
    }
    const std::vector<int64_t> shape = {static_cast<int64_t>(w.size())};
    const Stored b(w, DType::kBF16), a(after, DType::kBF16), i(d, DType::kF32);
    UpdateStats stats;
    ASSERT_TRUE(CheckUpdate(b.View(shape), a.View(shape), i.View(shape), &stats).ok());
    // Binomial: standard deviation 0.0005 over 400,000 elements.
    EXPECT_NEAR(static_cast<double>(stats.lost) / static_cast<double>(stats.intended), share,
                0.004);
    EXPECT_NEAR(stats.applied_along / stats.intended_l1, applied, 0.01);
    EXPECT_EQ(stats.misrounded, 0u);
  }
}

// moment-ratchet: v from 0 with normal gradients, 30,000 steps: 2.5 fused, 4.0 rounded twice.
TEST(Figures, TheSecondMomentRatchets) {
  for (const auto& [fused, expected] : {std::pair{true, 2.51}, std::pair{false, 3.98}}) {
    Draw draw(8);
    constexpr int kElements = 100;
    std::vector<double> v(kElements, 0);
    for (int step = 0; step < 30000; ++step) {
      for (double& x : v) {
        const double g = draw.Normal();
        const double kept = fused ? 0.999 * x : RoundToFormat(0.999 * x, DType::kBF16);
        x = RoundToFormat(kept + 0.001 * g * g, DType::kBF16);
      }
    }
    double mean = 0;
    for (const double x : v) mean += x / kElements;
    EXPECT_NEAR(mean, expected, 0.12);
  }
}

TEST(Figures, PositionsOf16Bits) {
  for (const auto& [dtype, distinct] :
       {std::pair{DType::kBF16, 769}, std::pair{DType::kF16, 3073}}) {
    std::vector<double> positions;
    for (int i = 0; i < 4096; ++i) positions.push_back(RoundToFormat(i, dtype));
    int64_t work = PositionWork(4096);
    const PositionRow row = LookAtPositions(positions.data(), 4096, dtype, work);
    ASSERT_EQ(row.stretches.size(), 1u);
    EXPECT_EQ(row.stretches[0].length(), 4096);
    EXPECT_EQ(row.stretches[0].distinct, distinct);
  }
}

// Tests that the finding depends on the applied fraction of the step: none above a half, all below
// it.
TEST(Power, LostUpdateByTheSizeOfTheStep) {
  int found = 0;
  for (int i = 0; i < 60; ++i) {
    UpdateRunSpec spec;
    spec.seed = i;
    spec.step_sd = std::pow(10.0, -6 + 3.0 * i / 60);
    const auto verdicts = VerdictsOf("precision/lost-update", {UpdateRun(spec)});
    ASSERT_EQ(verdicts.size(), 1u);
    const double applied =
        verdicts[0].details().fields().at("applied_over_intended").number_value();
    EXPECT_EQ(verdicts[0].kind(),
              applied < 0.5 ? v1::Verdict::KIND_FINDING : v1::Verdict::KIND_PASS)
        << spec.step_sd << " " << verdicts[0].ShortDebugString();
    found += applied < 0.5 ? 1 : 0;
  }
  EXPECT_GT(found, 20);
  EXPECT_LT(found, 40);
}

// Tests steps that are too small to change any element: distinguished from stochastic rounding if
// that would have changed a dozen elements.
TEST(Power, LostUpdateOfTinySteps) {
  const auto found = [](double step, int elements) {
    UpdateRunSpec spec;
    spec.weight = 1;
    spec.weight_sd = 0;
    spec.step_sd = step;
    spec.elements = elements;
    return Finds("precision/lost-update", UpdateRun(spec));
  };
  // |step| = 0.8 sd on average, an ulp at one is 2^-7: 12 units are sd * elements = 0.12.
  EXPECT_FALSE(found(1e-5, 4096));
  EXPECT_TRUE(found(1e-4, 4096));
  EXPECT_TRUE(found(1e-5, 100000));
}

// Tests that 16-bit sums are found from a few hundred keys on, and fp32 sums never.
TEST(Power, NormalisationByTheNumberOfKeys) {
  for (const int columns : {128, 512, 2048}) {
    for (const DType sums : {DType::kF32, DType::kBF16, DType::kF16}) {
      TensorRunSpec spec;
      spec.role = "probabilities";
      spec.content = "softmax";
      spec.columns = columns;
      spec.dtype = DType::kBF16;
      spec.sum_dtype = sums;
      const bool finds = Finds("precision/normalisation", TensorRun(spec));
      // fp16 errors are below the rounding of bf16 probabilities unless sums are long.
      const bool reported = sums == DType::kBF16 || (sums == DType::kF16 && columns == 2048);
      if (sums == DType::kF16 && !reported) continue;
      EXPECT_EQ(finds, reported) << columns << " " << DTypeName(sums);
    }
  }
}

// Tests every bit of every dtype on each of three ranks.
TEST(Power, EveryFlippedBitIsFoundAndItsRankNamed) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3}) {
    for (int bit = 0; bit < static_cast<int>(8 * DTypeSize(dtype)); ++bit) {
      TensorRunSpec spec;
      spec.ranks = 3;
      spec.rows = 8;
      spec.dtype = dtype;
      spec.replicas = "dp";
      spec.copies = true;
      spec.odd_rank = bit % 3;
      spec.flip_element = 7 * bit + 1;
      spec.flip_bit = bit;
      const auto verdicts = VerdictsOf("precision/replica-divergence", {TensorRun(spec)});
      ASSERT_EQ(verdicts.size(), 1u);
      ASSERT_EQ(verdicts[0].kind(), v1::Verdict::KIND_FINDING);
      const v1::Finding& f = verdicts[0].finding();
      EXPECT_EQ(f.cause().id(), "bit-flip");
      ASSERT_EQ(f.site().ranks_size(), 1);
      EXPECT_EQ(f.site().ranks(0), static_cast<uint32_t>(bit % 3));
      EXPECT_EQ(f.witness().fields().at("element").number_value(), 7 * bit + 1);
    }
  }
}

// Tests random ranks and token counts, logged in fp32: each kind of mean is identified.
TEST(Power, LossMeansAreDistinguished) {
  Draw draw(5);
  int apart = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<LossUnit> units;
    const int ranks = 2 + static_cast<int>(62 * draw.Uniform());
    double sum = 0, tokens = 0, means = 0;
    for (int r = 0; r < ranks; ++r) {
      const double n = 1 + std::floor(4096 * draw.Uniform());
      const auto s = static_cast<float>(n * (2 + 0.3 * draw.Normal()));
      units.push_back({static_cast<uint32_t>(r), 0, static_cast<double>(s), n});
      sum += static_cast<double>(s);
      tokens += n;
      means += static_cast<double>(s) / n / ranks;
    }
    const auto of_tokens = static_cast<double>(static_cast<float>(sum / tokens));
    const auto of_means = static_cast<double>(static_cast<float>(means));
    const LossMean good = CompareLoss(of_tokens, 0, units, 0).kind;
    const LossMean bad = CompareLoss(of_means, 0, units, 0).kind;
    EXPECT_NE(good, LossMean::kMeanOfMeans) << of_tokens << " " << of_means;
    EXPECT_NE(bad, LossMean::kTokenMean) << of_tokens << " " << of_means;
    EXPECT_NE(good, LossMean::kNeither);
    EXPECT_NE(bad, LossMean::kNeither);
    apart += bad == LossMean::kMeanOfMeans ? 1 : 0;
  }
  EXPECT_GT(apart, 1950);
}

TEST(RoundedSum, ThePartThatADoubleLosesDecidesTies) {
  // 1 + 2^-8 lies midway between two bf16 values; the smallest difference decides.
  const double half = 0x1p-8;
  EXPECT_EQ(RoundedSum(1, half, DType::kBF16), 1);
  EXPECT_EQ(RoundedSum(1, half * (1 + 0x1p-52), DType::kBF16), 1 + 0x1p-7);
  EXPECT_EQ(RoundedSum(1 + 0x1p-7, half, DType::kBF16), 1 + 0x1p-6);
  EXPECT_EQ(RoundedSum(1 + 0x1p-7, half * (1 - 0x1p-53), DType::kBF16), 1 + 0x1p-7);
  EXPECT_EQ(RoundedSum(-1, -half * (1 + 0x1p-52), DType::kBF16), -1 - 0x1p-7);
  EXPECT_TRUE(std::isnan(RoundedSum(NAN, 1, DType::kBF16)));
  EXPECT_EQ(RoundedSum(0x1p127, 0x1p127, DType::kBF16), INFINITY);
}

}  // namespace
}  // namespace plumbline::rules
