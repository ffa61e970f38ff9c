// Texts about non-finite values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/tensor/non_finite_trace.h"

namespace plumbline::analysis {

// Returns a text such as "2 NaN, 1 +Inf".
std::string CountText(const Observation& o);
// Returns a sentence about the rank's previous observation.
std::string BeforeText(const Observation* before);
// Returns sentences on since when a weight is non-finite that was so at the start of a step.
// `weight` is the last step at whose end the whole weight was finite. `site` is the last step in
// which it was observed and finite.
std::string StartText(const std::optional<int64_t>& weight, const std::optional<int64_t>& site,
                      int64_t step);
// Returns which weights and activations were observed before what was computed from them, and which
// were not. `weights` is the last step in which weights were observed and finite. Begins with a
// space.
std::string InFrontText(const NonFiniteTrace::InFront& front,
                        const std::optional<int64_t>& weights);
// Returns the moments of a weight that hold such a value too. If there is none, returns an empty
// string. Begins with a space.
std::string MomentText(const std::vector<const Observation*>& moments);
// Returns "It was last looked at in step 32; steps 33 to 63 were not looked at. "
std::string UnseenText(const std::optional<int64_t>& last, int64_t step, const char* what);

}  // namespace plumbline::analysis
