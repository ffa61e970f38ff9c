// What a journalled event says of steps and ranks, told to an engine: the same for the server that
// decided it, the one that is started again, and an audit of the stored run.
#pragma once

#include <cstdint>
#include <string>

#include "plumbline/v1/journal_event.pb.h"
#include "rules/engine/engine.h"

namespace plumbline::rules {

// Ranks that are gone, steps that are closed over ranks, steps that stopped, runs that are over;
// nothing of other events. `run`: only what concerns it; empty: all.
void TellCloses(const v1::JudgeEvent& event, const std::string& run, Engine* engine);

// A v1::MakeRoom whose bytes have this bit speaks of what the run's rules remember, and the rest of
// the number is what they may: servers from before it pass over so large a room.
inline constexpr uint64_t kOfItsRules = uint64_t{1} << 63;

LateCause LateCauseOf(v1::RanksGone::Cause cause);

}  // namespace plumbline::rules
