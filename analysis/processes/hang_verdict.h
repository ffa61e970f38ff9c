// The finding about processes that do not continue. It depends on the journalled event alone, so a
// server, a restarted server and an audit of the stored run report the same.
#pragma once

#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/journal_event.pb.h"

namespace plumbline::analysis {

inline constexpr const char* kHangRule = "performance/hang";

v1::Verdict HangVerdict(const v1::RanksHung& hung);

}  // namespace plumbline::analysis
