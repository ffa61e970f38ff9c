#include "analysis/tensor/block_fit.h"

#include <algorithm>
#include <cmath>

namespace plumbline::analysis {
namespace {

constexpr int kFewest = 8;    // values that a block needs to count as clipped or spent
constexpr int kMostBits = 4;  // wider formats need no scale per block

struct OneBlock {
  int size = 0, filled = 0, at_most = 0, below_most = 0, subnormal = 0;
  double amax = 0;
};

void Count(const OneBlock& block, double most, BlockFit* fit) {
  if (block.filled == 0) return;
  ++fit->blocks;
  fit->values += static_cast<uint64_t>(block.filled);
  fit->stale += block.amax < most / 4 && 4 * block.subnormal >= block.filled - 1;
  if (block.size < kFewest) return;
  const bool piled = block.at_most >= 3 && 4 * block.at_most >= block.size;
  fit->clipped += piled && block.at_most >= 2 * block.below_most;
  fit->spent += block.filled == 1;
}

}  // namespace

BlockFit FitOfBlocks(const MatmulCase& c, bool of_a) {
  BlockFit fit;
  const FloatFormat format = of_a ? c.a_format : c.b_format;
  if (c.block == 0 || format.precision > kMostBits) return fit;
  const double most = format.max_finite, least = PowerOfTwo(format.min_exponent);
  const double next = most - PowerOfTwo(format.max_exponent - format.precision + 1);
  for (int i = 0; i < c.samples; ++i) {
    for (int j = 0; j < c.blocks(); ++j) {
      OneBlock block;
      const int end = std::min((j + 1) * c.block, c.inner);
      for (int k = j * c.block; k < end; ++k) {
        const double x = std::fabs(of_a ? c.A(i, k) : c.B(i, k));
        if (!std::isfinite(x)) continue;
        ++block.size;
        block.filled += x != 0;
        block.at_most += x == most;
        block.below_most += x == next;
        block.subnormal += x != 0 && x < least;
        block.amax = std::max(block.amax, x);
      }
      Count(block, most, &fit);
    }
  }
  return fit;
}

}  // namespace plumbline::analysis
