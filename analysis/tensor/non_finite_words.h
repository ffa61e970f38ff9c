// How a value that is no number is told of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/tensor/non_finite_trace.h"

namespace plumbline::rules {

// "2 NaN, 1 +Inf".
std::string CountText(const Observation& o);
// What the rank had seen right before it, as a sentence.
std::string BeforeText(const Observation* before);
// "It was last looked at in step 32; steps 33 to 63 were not looked at. "
std::string UnseenText(const std::optional<int64_t>& last, int64_t step, const char* what);

}  // namespace plumbline::rules
