// What precision/format-fit says of the factors of a product that come with a scale a block.
#pragma once

#include <optional>

#include "analysis/frame/frame.h"

namespace plumbline::rules {

// nullopt: the item is no such product.
std::optional<v1::Verdict> JudgeBlockScales(const Item& item);

}  // namespace plumbline::rules
