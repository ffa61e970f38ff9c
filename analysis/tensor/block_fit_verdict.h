// precision/format-fit for the factors of a product that have a scale per block.
#pragma once

#include <optional>

#include "analysis/frame/frame.h"

namespace plumbline::analysis {

// Returns nullopt if the item is no such product.
std::optional<v1::Verdict> JudgeBlockScales(const Item& item);

}  // namespace plumbline::analysis
