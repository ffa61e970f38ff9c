// What precision/format-fit says of one tensor and a format that has a scale a block.
#pragma once

#include <optional>
#include <string>

#include "analysis/frame/frame.h"

namespace plumbline::rules {

// The option `blocks`: the declared format, or one of these whatever was declared.
inline constexpr char kBlockChoices[] =
    "declared|mxfp8|mxfp8-e5m2|mxfp4|nvfp4|fp8-1x128|fp8-128x128";

// The tensor is to be stored in a format with a scale a block, or is stored so.
bool DeclaresBlocks(const v1::TensorState& state);

// `asked`: one of kBlockChoices. nullopt: no tensor, or one that declares no such format where the
// declared one is asked for.
std::optional<v1::Verdict> JudgeBlockTensor(const Item& item, const std::string& asked);

}  // namespace plumbline::rules
