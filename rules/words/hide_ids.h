// Removes token and sequence ids from a finding or a reason, for readers who did not ask for them.
// Redacted ids are removed, too: whoever has the key can find the ids.
#pragma once

#include <string>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

inline constexpr char kHiddenId[] = "(hidden)";

// The finding, where only its texts, witness, details and forecast are changed. Findings of rules
// that name no ids come back as they are. Thread-safe.
v1::Finding WithoutIds(const v1::Finding& finding);

// The same of the reason of a verdict of `rule`.
std::string ReasonWithoutIds(const std::string& rule, const std::string& reason);

}  // namespace plumbline::rules
