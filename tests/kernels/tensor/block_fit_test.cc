// Compares the error of a tensor in block-scaled formats with direct implementations of the
// definitions.
#include "kernels/tensor/block_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/block_formats.h"
#include "kernels/evidence/block_fit.h"

namespace plumbline {
namespace {

// Searches all values: a tie goes to the even code, values beyond 6 to 6.
double NearestE2M1(double x) {
  uint8_t best = 0;
  for (uint8_t code = 0; code < 8; ++code) {
    const double off = std::fabs(std::fabs(x) - E2M1Value(code));
    const double least = std::fabs(std::fabs(x) - E2M1Value(best));
    if (off < least || (off == least && code % 2 == 0)) best = code;
  }
  return std::copysign(E2M1Value(best), x);
}

// Returns x in `format`, with the formats' own codecs; infinite if it saturates.
double Rounded(double x, const std::string& element) {
  if (element == "e2m1") {
    const double y = NearestE2M1(x);
    return std::fabs(x) > 7 ? INFINITY : y;
  }
  const DType t = element == "e4m3" ? DType::kE4M3 : DType::kE5M2;
  const double y = RoundToFormat(x, t);
  return std::isfinite(y) ? y : INFINITY;
}

double Largest(const std::string& element) {
  return element == "e2m1" ? 6 : element == "e4m3" ? 448 : 57344;
}

// Returns magnitudes over six decades, including zeros.
std::vector<float> Draw(size_t n, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<float> x;
  for (size_t i = 0; i < n; ++i)
    x.push_back(random() % 10 == 0
                    ? 0.0f
                    : static_cast<float>(normal(random) * std::exp2(3 * normal(random))));
  return x;
}

struct Lost {
  uint64_t blocks = 0, values = 0, flushed = 0, saturated = 0;
};

// Measures blocks of rows x columns at the scale that `scale_of` returns for an amax.
template <typename ScaleOf>
Lost Plain(const std::vector<float>& x, int64_t width, const BlockFormat& f,
           const ScaleOf& scale_of) {
  Lost lost;
  const int64_t height = static_cast<int64_t>(x.size()) / width;
  for (int64_t r = 0; r < height; r += f.rows) {
    for (int64_t c = 0; c < width; c += f.columns) {
      std::vector<double> block;
      for (int64_t i = r; i < std::min(r + f.rows, height); ++i)
        for (int64_t j = c; j < std::min(c + f.columns, width); ++j)
          block.push_back(static_cast<double>(x[static_cast<size_t>(i * width + j)]));
      double amax = 0;
      for (const double v : block) amax = std::max(amax, std::fabs(v));
      if (amax == 0) continue;
      ++lost.blocks;
      const double s = scale_of(amax);
      for (const double v : block) {
        if (v == 0) continue;
        const double y = Rounded(v / s, f.element);
        ++lost.values;
        lost.flushed += y == 0;
        lost.saturated += std::isinf(y);
      }
    }
  }
  return lost;
}

void ExpectEqual(const BlockScaleCounts& got, const Lost& want, const std::string& what) {
  EXPECT_EQ(got.blocks, want.blocks) << what;
  EXPECT_EQ(got.values, want.values) << what;
  EXPECT_EQ(got.flushed, want.flushed) << what;
  EXPECT_EQ(got.saturated, want.saturated) << what;
}

TEST(BlockFit, CountsWhatTheFormatsCodecsLose) {
  for (const int64_t width : {1, 31, 32, 33, 200}) {
    for (const NamedBlockFormat& named : BlockFormats()) {
      if (named.format.scale == BlockScale::kE4M3) continue;
      const std::vector<float> x = Draw(static_cast<size_t>(width) * 150, 7);
      const TensorView view = TensorView::Dense(x.data(), DType::kF32, 150, width);
      BlockScaleCounts got;
      ASSERT_TRUE(MeasureBlockFit(view, named.format, {}, 0, &got).ok());
      const std::string& e = named.format.element;
      const int top = e == "e2m1" ? 2 : e == "e4m3" ? 8 : 15;
      const auto scale = [&](double amax) {
        return named.format.scale == BlockScale::kF32
                   ? amax / Largest(e)
                   : std::exp2(std::floor(std::log2(amax)) - top);
      };
      ExpectEqual(got, Plain(x, width, named.format, scale),
                  std::string(named.name) + " " + std::to_string(width));
      EXPECT_EQ(got.stale, 0u);  // no scale was recorded
      EXPECT_EQ(got.clipped, 0u);
    }
  }
}

// NVFP4: the scale of a block is an e4m3 number times the scale of the tensor.
TEST(BlockFit, Nvfp4HasTwoScales) {
  const std::vector<float> x = Draw(64 * 160, 9);
  double amax_of_all = 0;
  for (const float v : x) amax_of_all = std::max(amax_of_all, static_cast<double>(std::fabs(v)));
  const BlockFormat format{"e2m1", BlockScale::kE4M3, 16, 1};
  for (const double tensor_scale : {0.0, amax_of_all / 6 / 448, 0.01}) {
    const double t = tensor_scale > 0 ? tensor_scale : amax_of_all / 6 / 448;
    BlockScaleCounts got;
    const TensorView view = TensorView::Dense(x.data(), DType::kF32, 64, 160);
    ASSERT_TRUE(MeasureBlockFit(view, format, {}, tensor_scale, &got).ok());
    const auto scale = [&](double amax) {
      const double s = RoundToFormat(std::min(amax / 6 / t, 448.0), DType::kE4M3);
      return std::max(s, std::exp2(-9)) * t;
    };
    ExpectEqual(got, Plain(x, 160, format, scale), std::to_string(tensor_scale));
  }
}

// The same values in any layout and dtype that can hold them.
TEST(BlockFit, LayoutChangesNothing) {
  std::vector<float> x = Draw(96 * 64, 3), transposed(x.size());
  for (size_t i = 0; i < 96; ++i)
    for (size_t j = 0; j < 64; ++j) transposed[j * 96 + i] = x[i * 64 + j];
  TensorView view = TensorView::Dense(transposed.data(), DType::kF32, 96, 64);
  view.stride = {1, 96};
  const BlockFormat format{"e2m1", BlockScale::kPowerOfTwo, 32, 1};
  BlockScaleCounts dense, strided;
  ASSERT_TRUE(
      MeasureBlockFit(TensorView::Dense(x.data(), DType::kF32, 96, 64), format, {}, 0, &dense)
          .ok());
  ASSERT_TRUE(MeasureBlockFit(view, format, {}, 0, &strided).ok());
  EXPECT_EQ(dense.flushed, strided.flushed);
  EXPECT_EQ(dense.mass, strided.mass);
  EXPECT_GT(dense.flushed, 100u);
}

// Returns recorded scales that are `off` times what the blocks need.
BlockScaleCounts Recorded(const std::vector<float>& x, double off, const std::string& element) {
  const int top = element == "e2m1" ? 2 : 8;
  std::vector<float> scales;
  for (size_t i = 0; i < x.size(); i += 32) {
    double amax = 0;
    for (size_t k = i; k < i + 32; ++k)
      amax = std::isfinite(x[k]) ? std::max(amax, std::fabs(static_cast<double>(x[k]))) : amax;
    scales.push_back(static_cast<float>(off * std::exp2(std::floor(std::log2(amax)) - top)));
  }
  BlockScaleCounts got;
  const TensorView view =
      TensorView::Dense(x.data(), DType::kF32, static_cast<int64_t>(x.size() / 32), 32);
  EXPECT_TRUE(
      MeasureBlockFit(view, {element, BlockScale::kPowerOfTwo, 32, 1}, scales, 0, &got).ok());
  return got;
}

TEST(BlockFit, ScalesOfAnotherTimeAreStaleOrCut) {
  std::vector<float> x;
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 32 * 500; ++i) x.push_back(static_cast<float>(normal(random)));
  const BlockScaleCounts right = Recorded(x, 1, "e2m1");
  EXPECT_EQ(right.stale + right.clipped, 0u);
  EXPECT_EQ(Recorded(x, 8, "e2m1").stale, 500u);
  EXPECT_EQ(Recorded(x, 0.125, "e2m1").clipped, 500u);
  // In 8 bits, a scale that is eight times too large has no effect: all values stay normal.
  EXPECT_EQ(Recorded(x, 8, "e4m3").stale, 0u);
  EXPECT_EQ(Recorded(x, 16384, "e4m3").stale, 500u);
}

TEST(BlockFit, OneOutlierTakesTheScale) {
  std::mt19937_64 random(6);
  std::normal_distribution<double> normal;
  std::vector<float> x;
  for (int i = 0; i < 32 * 400; ++i)
    x.push_back(static_cast<float>(normal(random) + (i % 64 == 5 ? 100 : 0)));
  BlockScaleCounts four, eight;
  const TensorView view = TensorView::Dense(x.data(), DType::kF32, 400, 32);
  ASSERT_TRUE(MeasureBlockFit(view, BlockFormats()[2].format, {}, 0, &four).ok());
  ASSERT_TRUE(MeasureBlockFit(view, BlockFormats()[0].format, {}, 0, &eight).ok());
  EXPECT_NEAR(static_cast<double>(four.spent), 200, 8);
  EXPECT_EQ(eight.spent, 0u);
  // Values that differ widely have the same loss at any scale: no outlier caused it.
  std::vector<float> wide;
  for (int i = 0; i < 32 * 400; ++i) wide.push_back(std::exp2(static_cast<float>(i % 32) - 16));
  BlockScaleCounts apart;
  const TensorView of_wide = TensorView::Dense(wide.data(), DType::kF32, 400, 32);
  ASSERT_TRUE(MeasureBlockFit(of_wide, BlockFormats()[2].format, {}, 0, &apart).ok());
  EXPECT_EQ(apart.spent, 0u);
  EXPECT_GT(2 * apart.flushed, apart.values);
}

TEST(BlockFit, NonFiniteValuesAreIgnored) {
  std::vector<float> x = Draw(32 * 100, 8), clean = x;
  for (size_t i = 0; i < x.size(); i += 7) {
    x[i] = i % 2 == 0 ? NAN : INFINITY;
    clean[i] = 0;
  }
  const BlockScaleCounts poisoned = Recorded(x, 1, "e2m1"), without = Recorded(clean, 1, "e2m1");
  EXPECT_EQ(poisoned.values, without.values);
  EXPECT_EQ(poisoned.flushed, without.flushed);
  EXPECT_EQ(poisoned.mass, without.mass);
  for (const double off : {0.0, -1.0, static_cast<double>(NAN)}) {
    const BlockScaleCounts bad = Recorded(clean, off, "e2m1");
    EXPECT_EQ(bad.blocks, 0u);
    EXPECT_EQ(bad.unusable, 100u);
  }
}

// For stored values, only the marks that the scale left can be counted.
TEST(BlockFit, StoredValuesKeepTheMarks) {
  std::vector<float> stale(32 * 64, 0.5f), cut(32 * 64, 6), alone(32 * 64, 0);
  for (size_t i = 0; i < alone.size(); i += 32) alone[i] = 6;
  const BlockFormat format{"e2m1", BlockScale::kPowerOfTwo, 32, 1, true};
  const auto measure = [&](const std::vector<float>& x) {
    BlockScaleCounts got;
    EXPECT_TRUE(
        MeasureBlockFit(TensorView::Dense(x.data(), DType::kF32, 64, 32), format, {}, 0, &got)
            .ok());
    EXPECT_EQ(got.flushed + got.saturated, 0u);
    return got;
  };
  EXPECT_EQ(measure(stale).stale, 64u);
  EXPECT_EQ(measure(cut).clipped, 64u);
  EXPECT_EQ(measure(alone).spent, 64u);
}

TEST(BlockFit, WhatDoesNotFitIsRefused) {
  const std::vector<float> x(64 * 32, 1.0f);
  const std::vector<int32_t> whole(64, 1);
  const TensorView view = TensorView::Dense(x.data(), DType::kF32, 64, 32);
  BlockScaleCounts got;
  const std::vector<float> scales(63, 1.0f);
  EXPECT_FALSE(MeasureBlockFit(view, BlockFormats()[0].format, scales, 0, &got).ok());
  EXPECT_FALSE(MeasureBlockFit(view, {"e3m2"}, {}, 0, &got).ok());
  EXPECT_FALSE(MeasureBlockFit(view, {"e4m3", BlockScale::kF32, 0, 1}, {}, 0, &got).ok());
  EXPECT_FALSE(MeasureBlockFit(TensorView::Dense(whole.data(), DType::kI32, 64),
                               BlockFormats()[0].format, {}, 0, &got)
                   .ok());
  EXPECT_TRUE(MeasureBlockFit(TensorView::Dense(x.data(), DType::kF32, 0, 32),
                              BlockFormats()[0].format, {}, 0, &got)
                  .ok());
  EXPECT_EQ(got.blocks, 0u);
}

}  // namespace
}  // namespace plumbline
