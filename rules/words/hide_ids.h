// A finding or a reason without the token and sequence ids that it names: for readers who have not
// asked for them. Ids that were redacted already are hidden, too: who has the key has the ids.
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
