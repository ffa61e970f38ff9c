// Removes token and sequence ids from a finding or a reason, for readers that did not request them.
// Redacted ids are removed too, because anyone with the key can recover the ids.
#pragma once

#include <string>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

inline constexpr char kHiddenId[] = "(hidden)";

// Returns the finding with changed texts, witness, details and forecast only. If its rule has no
// ids, returns it unchanged. Thread-safe.
v1::Finding WithoutIds(const v1::Finding& finding);

// Does the same for the reason of a verdict of `rule`.
std::string ReasonWithoutIds(const std::string& rule, const std::string& reason);

}  // namespace plumbline::rules
