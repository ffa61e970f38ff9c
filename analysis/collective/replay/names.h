// Returns names of reduction models.
#pragma once

#include <string>

#include "analysis/collective/replay/candidates.h"

namespace plumbline::analysis {

// Returns a text such as "bf16 ring starting at rank 3, descending" or "fp32 accumulation, rounded
// once".
std::string ModelWords(const std::string& family, const Parameters& parameters);

// Returns true for default values: no averaging, no flush, groups of one, one wire dtype.
bool IsDefault(const std::string& key, const std::string& value);
// Returns true for keys with numeric values: start, group and segment_step.
bool IsNumber(const std::string& key);

}  // namespace plumbline::analysis
