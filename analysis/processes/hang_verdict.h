// The finding that processes which do not go on make: a function of the journalled event alone, so
// that a server, a server that was restarted and an audit of the stored run say the same.
#pragma once

#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/journal_event.pb.h"

namespace plumbline::rules {

inline constexpr const char* kHangRule = "performance/hang";

v1::Verdict HangVerdict(const v1::RanksHung& hung);

}  // namespace plumbline::rules
