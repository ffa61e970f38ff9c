// The products of one sampled element, in the forms that the candidates share.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "analysis/product/case.h"
#include "analysis/product/model.h"
#include "base/exact_sum.h"

namespace plumbline::analysis {

inline constexpr int kBlockSizes = 7;  // 1, 2, 4, ..., 64
inline constexpr int32_t kNoExponent = -(1 << 20);

// Returns the index of the block size. If it is not one of them, returns -1.
constexpr int BlockIndex(int block) {
  for (int i = 0; i < kBlockSizes; ++i) {
    if (block == 1 << i) return i;
  }
  return -1;
}

struct MatmulTerms {
  int size = 0;                  // K
  std::vector<double> product;   // exact: factors have at most 24 bits
  std::vector<float> product32;  // rounded to f32
  // Largest unnormalised exponent of each block of 1, 2, 4, ... products; kNoExponent if all are
  // zero.
  std::array<std::vector<int32_t>, kBlockSizes> exponent;
  ExactSum exact;
  double total = 0;    // sum |p|
  double squares = 0;  // sum p^2
  bool finite = true;  // every factor is finite
  // sum over i of |p_0 + ... + p_i|, and per block size the sum over blocks of the larger of
  // 2^exponent and the block's largest |partial sum|. The error bounds use them.
  double prefix_sum = 0;
  double prefix_most = 0;
  std::array<double, kBlockSizes> block_scale{};
  // The scales of each block of the case, if its sums are scaled.
  std::vector<double> a_scale, b_scale;

  // Returns the largest exponent of products [first, last): a block of `block`, or the rest of one.
  int32_t BlockExponent(int block, int first, int last) const;

  // Loads sample i. Reuses the memory.
  void Load(const MatmulCase& c, int i, InputCut cut, BlockScaling blocks = BlockScaling::kFactors);

 private:
  struct Factor {
    double value = 0;
    int32_t exponent = 0;
  };
  // Loads one term per block: its exact sum with both scales.
  void LoadBlockSums(const MatmulCase& c, int i);
  void Finish();
  static Factor Scaled(double x, double scale, int least, BlockScaling blocks, bool exact);
  void Measure();
};

}  // namespace plumbline::analysis
