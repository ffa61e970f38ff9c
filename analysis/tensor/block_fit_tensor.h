// precision/format-fit for one tensor and a format that has a scale per block.
#pragma once

#include <optional>
#include <string>

#include "analysis/frame/frame.h"

namespace plumbline::analysis {

// Values of the option `blocks`: the declared format, or one of these instead of it.
inline constexpr char kBlockChoices[] =
    "declared|mxfp8|mxfp8-e5m2|mxfp4|nvfp4|fp8-1x128|fp8-128x128";

// Returns true if the tensor is to be stored in a format with a scale per block, or is stored so.
bool DeclaresBlocks(const v1::TensorState& state);

// `asked` is one of kBlockChoices. Returns nullopt if the item is not a tensor, or if the declared
// format is asked for and the tensor declares none.
std::optional<v1::Verdict> JudgeBlockTensor(const Item& item, const std::string& requested);

}  // namespace plumbline::analysis
