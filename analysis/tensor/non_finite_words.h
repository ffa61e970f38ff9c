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
// Of a weight that a step found so: since when, as sentences. `weight`: the last step at whose end
// the whole weight was seen finite; `site`: in which it was looked at at last, and finite.
std::string StartText(const std::optional<int64_t>& weight, const std::optional<int64_t>& site,
                      int64_t step);
// Which weights and activations were looked at before what was computed from them, and which were
// not; `weights`: the last step in which weights were, and finite. Begins with a space.
std::string InFrontText(const NonFiniteTrace::InFront& front,
                        const std::optional<int64_t>& weights);
// The moments of a weight that hold such a value too; empty: none does. Begins with a space.
std::string MomentText(const std::vector<const Observation*>& moments);
// "It was last looked at in step 32; steps 33 to 63 were not looked at. "
std::string UnseenText(const std::optional<int64_t>& last, int64_t step, const char* what);

}  // namespace plumbline::rules
