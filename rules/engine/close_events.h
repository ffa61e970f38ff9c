// Applies a journalled event about steps and ranks to an engine. The server that made the event,
// the restarted server, and an audit of the stored run all use this.
#pragma once

#include <cstdint>
#include <string>

#include "plumbline/v1/journal_event.pb.h"
#include "rules/engine/engine.h"

namespace plumbline::rules {

// Applies ranks that are gone, steps that are closed over ranks or stopped, and runs that are over;
// ignores other events. If `run` is not empty, applies only events of this run.
void ApplyCloses(const v1::JudgeEvent& event, const std::string& run, Engine* engine);

// A v1::MakeRoom with this bit set in its bytes limits the memory of the run's rules; the other
// bits are the limit. Older servers ignore such a large number.
inline constexpr uint64_t kOfItsRules = uint64_t{1} << 63;

LateCause LateCauseOf(v1::RanksGone::Cause cause);

}  // namespace plumbline::rules
