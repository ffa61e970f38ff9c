// Reads one dump of a flight recorder, a pickle or JSON, into the message that rules judge.
#pragma once

#include <optional>
#include <string_view>

#include "audit/readers/input/reader.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// `bytes`: the whole dump. A pickle may hold only containers, numbers and texts; a pickle with a
// call is refused. Returns the problem, or nothing. Leaves out parts that do not have the expected
// form.
std::optional<Problem> ReadFlightDump(std::string_view bytes, v1::FlightRecorder* out,
                                      uint64_t* records);

// Returns true if the first bytes are those of a dump.
bool LooksLikeFlightDump(std::string_view head);

}  // namespace plumbline::audit
