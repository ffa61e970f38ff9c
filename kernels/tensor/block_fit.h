// Measures how well a tensor fits a format with one scale per block (OCP Microscaling, NVFP4, FP8
// with tiles of 1 x 128 and 128 x 128): values that become 0, values that are cut, and scales that
// serve one outlier. Measured on the values before they are stored, with the recorded scales or
// with those of the format's rule.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "base/half.h"
#include "base/tensor_view.h"

namespace plumbline {

// The format of a block's scale, and the rule that computes it from the block's amax:
// - power of two: 2^(floor(log2 amax) - the format's largest exponent) (OCP MX 1.0, section 6.3)
// - e4m3: amax / max / T rounded to e4m3, T = the tensor's amax / (max * 448) (NVFP4)
// - f32: amax / max
enum class BlockScale : uint8_t { kPowerOfTwo, kE4M3, kF32 };

struct BlockFormat {
  std::string element = "e4m3";  // "e4m3", "e5m2" or "e2m1"
  BlockScale scale = BlockScale::kPowerOfTwo;
  int64_t columns = 32;  // of a block, along the last axis; the last block of a row may be shorter
  int64_t rows = 1;      // of a block: all axes but the last are one
  bool stored = false;   // the values are in the format already
};

// All integers are exact; sums of magnitudes are taken block by block in fp64.
struct BlockScaleCounts {
  uint64_t blocks = 0;  // blocks with a non-zero value and a scale
  uint64_t values = 0;  // finite and not zero, of these blocks
  uint64_t flushed = 0, saturated = 0;
  double mass = 0, flushed_mass = 0, cut_mass = 0;  // sums of |x|; of |x| beyond the largest
  // Blocks whose recorded scale puts their amax below a quarter of the format's largest value,
  // while a quarter of their other values are below its least normal one: the scale is outdated or
  // of a larger block, and bits are lost.
  uint64_t stale = 0;
  // Blocks whose amax is cut by a factor of 2 or more, which no format's rule does.
  uint64_t clipped = 0;
  // Blocks of at least eight values in which half of the others become 0 next to the largest, and
  // less than a quarter of them would at the scale for the second largest.
  uint64_t spent = 0;
  uint64_t unusable = 0;  // blocks whose recorded scale is not positive and finite
};

// Measures the fit. If `format.stored` is set, lost values cannot be seen, and only their traces
// count. A block is then clipped if several of at least eight values and a quarter of them are the
// largest, twice as many as the next below; and spent if one value stands alone among zeros.
// Floating host tensors of any layout; `scales`: empty, or one for each block, row of blocks by row
// of blocks, each times `tensor_scale`. Errors as MeasureTensor; InvalidArgument if the number of
// scales is not that of the blocks, or the format is unknown.
absl::Status MeasureBlockFit(const TensorView& tensor, const BlockFormat& format,
                             std::span<const float> scales, double tensor_scale,
                             BlockScaleCounts* fit);

// ceil(rows / format.rows) and ceil(last axis / format.columns).
struct BlockGrid {
  int64_t rows = 0, columns = 0;
};
BlockGrid GridOf(const TensorView& tensor, const BlockFormat& format);

}  // namespace plumbline
