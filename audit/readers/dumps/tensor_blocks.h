// Reads the block-scaled format in which a dumped tensor is stored, or is to be stored:
// `target_format` (mxfp8, mxfp4, nvfp4, or an element's format with `block`), `block` (32, 1x128,
// 128x128), `scale_format`, and tensors `scale` and `tensor_scale`.
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

// Names of the tensors that hold the scales of blocks, and the scale of the whole tensor (NVFP4).
inline constexpr const char* kScale = "scale";
inline constexpr const char* kTensorScale = "tensor_scale";

// Reads and checks the format. If the dump names none, returns nullopt.
std::optional<BlockFormat> ReadBlocks(const SafetensorsHeader& header,
                                      std::vector<Problem>* problems);

void CheckBlockScales(const SafetensorsHeader& header, const TensorEntry& values,
                      std::vector<Problem>* problems);

// Requires that the values were checked.
absl::Status LoadBlockFits(const InputFile& file, const SafetensorsHeader& header,
                           const TensorView& values, v1::TensorState* out);

}  // namespace plumbline::audit
