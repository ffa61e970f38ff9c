// Words for models of a reduction.
#pragma once

#include <string>

#include "analysis/collective/replay/candidates.h"

namespace plumbline::rules {

// "bf16 ring starting at rank 3, descending", "fp32 accumulation, rounded once".
std::string ModelWords(const std::string& family, const Parameters& parameters);

// Parameters that go without saying: no averaging, no flush, groups of one, one wire dtype.
bool IsDefault(const std::string& key, const std::string& value);
// start, group and segment_step are numbers.
bool IsNumber(const std::string& key);

}  // namespace plumbline::rules
