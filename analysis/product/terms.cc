#include "analysis/product/terms.h"

#include <algorithm>
#include <cmath>

namespace plumbline::analysis {
namespace {

// Returns floor(log2|x|), but at least the format's smallest normal exponent, for a value of the
// format.
int32_t ExponentIn(double x, int least) {
  return x == 0 ? kNoExponent : std::max(std::ilogb(x), least);
}

int LeastExponent(const FloatFormat& format, InputCut cut) {
  // A cut keeps f32's range.
  return cut == InputCut::kNone ? format.min_exponent : FormatOf(DType::kF32).min_exponent;
}

}  // namespace

// Returns a factor with its block's scale. A power of two moves the exponent and does not round.
// Any other scale makes a new number, in f32 or bf16.
MatmulTerms::Factor MatmulTerms::Scaled(double x, double scale, int least, BlockScaling blocks,
                                        bool exact) {
  if (exact && blocks == BlockScaling::kFactors) {
    const int moved = scale == 0 ? 0 : std::ilogb(scale);
    return {x * scale, x == 0 || scale == 0 ? kNoExponent : ExponentIn(x, least) + moved};
  }
  const bool bf16 = blocks == BlockScaling::kFactorsBf16;
  const double value =
      bf16 ? RoundToFormat(x * scale, DType::kBF16) : static_cast<float>(x * scale);
  return {value, ExponentIn(value, FormatOf(DType::kF32).min_exponent)};
}

void MatmulTerms::LoadBlockSums(const MatmulCase& c, int i) {
  size = c.blocks();
  product.resize(static_cast<size_t>(size));
  product32.resize(product.size());
  exponent[0].resize(product.size());
  for (int j = 0; j < size; ++j) {
    ExactSum sum;
    for (int k = j * c.block; k < std::min((j + 1) * c.block, c.inner); ++k) {
      const double p = c.A(i, k) * c.B(i, k);
      finite &= std::isfinite(p);
      if (!finite) return;
      sum.Add(p);
    }
    const auto at = static_cast<size_t>(j);
    product[at] = sum.Value() * (c.AScale(i, j) * c.BScale(i, j));
    product32[at] = static_cast<float>(product[at]);
    exponent[0][at] = ExponentIn(product[at], FormatOf(DType::kF32).min_exponent);
  }
  Finish();
}

void MatmulTerms::Load(const MatmulCase& c, int i, InputCut cut, BlockScaling blocks) {
  finite = true;
  a_scale.clear();
  b_scale.clear();
  if (blocks == BlockScaling::kInside) return LoadBlockSums(c, i);
  size = c.inner;
  product.resize(static_cast<size_t>(size));
  product32.resize(product.size());
  exponent[0].resize(product.size());
  const bool sums = blocks >= BlockScaling::kFused;
  for (int j = 0; sums && j < c.blocks(); ++j) {
    a_scale.push_back(c.AScale(i, j));
    b_scale.push_back(c.BScale(i, j));
  }
  const bool factors = c.block > 0 && !sums;
  const int least_a = LeastExponent(c.a_format, cut), least_b = LeastExponent(c.b_format, cut);
  for (int k = 0; k < size; ++k) {
    double x = c.A(i, k), y = c.B(i, k);
    if (!std::isfinite(x) || !std::isfinite(y)) {
      finite = false;
      return;
    }
    if (cut != InputCut::kNone) {
      x = CutInput(cut, x);
      y = CutInput(cut, y);
    }
    Factor a{x, ExponentIn(x, least_a)}, b{y, ExponentIn(y, least_b)};
    if (factors) {
      const int j = k / c.block;
      a = Scaled(x, c.AScale(i, j), least_a, blocks, c.exact_blocks);
      b = Scaled(y, c.BScale(i, j), least_b, blocks, c.exact_blocks);
    }
    const auto at = static_cast<size_t>(k);
    product[at] = a.value * b.value;
    product32[at] = static_cast<float>(product[at]);
    exponent[0][at] = product[at] == 0 ? kNoExponent : a.exponent + b.exponent;
  }
  Finish();
}

void MatmulTerms::Finish() {
  for (size_t level = 1; level < exponent.size(); ++level) {
    const std::vector<int32_t>& from = exponent[level - 1];
    std::vector<int32_t>& to = exponent[level];
    to.resize((from.size() + 1) / 2);
    for (size_t j = 0; j < to.size(); ++j)
      to[j] = 2 * j + 1 < from.size() ? std::max(from[2 * j], from[2 * j + 1]) : from[2 * j];
  }
  Measure();
}

// Uses the prepared values if the block lies on its grid.
int32_t MatmulTerms::BlockExponent(int block, int first, int last) const {
  const int level = BlockIndex(block);
  if (level >= 0 && first % block == 0 && (last - first == block || last == size))
    return exponent[static_cast<size_t>(level)][static_cast<size_t>(first / block)];
  int32_t e = kNoExponent;
  for (int k = first; k < last; ++k) e = std::max(e, exponent[0][static_cast<size_t>(k)]);
  return e;
}

void MatmulTerms::Measure() {
  exact.Clear();
  total = squares = prefix_sum = prefix_most = 0;
  std::array<double, kBlockSizes> most{};
  block_scale.fill(0);
  double prefix = 0;
  for (int k = 0; k < size; ++k) {
    const double p = product[static_cast<size_t>(k)];
    exact.Add(p);
    total += std::abs(p);
    squares += p * p;
    // A block's accumulator starts as the sum of the blocks before.
    for (int g = 0; g < kBlockSizes; ++g) {
      if (k % (1 << g) == 0) most[static_cast<size_t>(g)] = std::abs(prefix);
    }
    prefix += p;
    prefix_sum += std::abs(prefix);
    prefix_most = std::max(prefix_most, std::abs(prefix));
    for (int g = 0; g < kBlockSizes; ++g) {
      const auto at = static_cast<size_t>(g);
      most[at] = std::max(most[at], std::abs(prefix));
      if ((k + 1) % (1 << g) != 0 && k + 1 != size) continue;
      const int32_t e = exponent[at][static_cast<size_t>(k >> g)];
      block_scale[at] += std::max(most[at], e == kNoExponent ? 0 : std::ldexp(1, e));
    }
  }
}

}  // namespace plumbline::analysis
