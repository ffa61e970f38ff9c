// Messages about how a tensor fits the formats with one scale per block.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "base/tensor_view.h"
#include "kernels/tensor/block_fit.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline {

// The formats by their names: "mxfp8", "mxfp8-e5m2", "mxfp4", "nvfp4", "fp8-1x128", "fp8-128x128".
struct NamedBlockFormat {
  std::string_view name;
  BlockFormat format;
};
std::span<const NamedBlockFormat> BlockFormats();

// Returns "e8m0", "e4m3", "f32".
const char* BlockScaleName(BlockScale scale);

// The format that a dump declares for a tensor: the tensor is stored in it, or will be.
struct DeclaredBlocks {
  BlockFormat format;
  std::span<const float> scales;  // empty: none are recorded
  double tensor_scale = 0;        // 0: none
};

// Replaces out's block_fits: first the declared one; then each of BlockFormats(), if the values are
// wider than 8 bits and at most 2^24. Errors as MeasureBlockFit's.
absl::Status FillBlockFits(const TensorView& tensor, const std::optional<DeclaredBlocks>& declared,
                           v1::TensorState* out);

}  // namespace plumbline
