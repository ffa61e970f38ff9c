// The finding about a run whose processes are alive but begin no step. It depends on the journalled
// event alone, so a server, a restarted server and an audit of the stored run report the same.
#pragma once

#include <string>

#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/journal_event.pb.h"

namespace plumbline::analysis {

inline constexpr const char* kStepsStoppedRule = "health/hang-between-steps";

v1::Verdict StepsStoppedVerdict(const v1::StepsStopped& stopped);

// Returns "45 s", "28.1 min" or "3.2 h".
std::string DurationText(double seconds);

}  // namespace plumbline::analysis
