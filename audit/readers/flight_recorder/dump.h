// One dump of a flight recorder, a pickle or JSON, as the message that rules are given.
#pragma once

#include <optional>
#include <string_view>

#include "audit/readers/input/reader.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// `bytes`: the whole dump. A pickle is built of containers, numbers and texts alone: one that calls
// anything is refused. The problem, or nothing. What of it is not as expected is left out.
std::optional<Problem> ReadFlightDump(std::string_view bytes, v1::FlightRecorder* out,
                                      uint64_t* records);

// Whether the first bytes are those of a dump.
bool LooksLikeFlightDump(std::string_view head);

}  // namespace plumbline::audit
