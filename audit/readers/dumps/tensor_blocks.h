// What a dump of a tensor says of the format with a scale a block that it is stored in, or is to
// be: `target_format` (mxfp8, mxfp4, nvfp4, or an element's format beside `block`), `block` (32,
// 1x128, 128x128), `scale_format`, and tensors `scale` and `tensor_scale`.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "audit/readers/dumps/kind.h"
#include "audit/readers/input/file.h"
#include "audit/readers/safetensors/header.h"
#include "base/tensor_view.h"
#include "kernels/tensor/block_fit.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// The tensors that hold scales: of blocks, and of the whole (NVFP4).
inline constexpr const char* kScale = "scale";
inline constexpr const char* kTensorScale = "tensor_scale";

// nullopt: the dump names no such format. Checks as it reads.
std::optional<BlockFormat> ReadBlocks(const SafetensorsHeader& header,
                                      std::vector<Problem>* problems);

void CheckBlockScales(const SafetensorsHeader& header, const TensorEntry& values,
                      std::vector<Problem>* problems);

// Of checked values.
absl::Status LoadBlockFits(const InputFile& file, const SafetensorsHeader& header,
                           const TensorView& values, v1::TensorState* out);

}  // namespace plumbline::audit
