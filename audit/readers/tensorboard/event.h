// Reads the scalars of one record of an event file (tensorflow.Event).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// Adds the event's scalars to the sink: simple values, and tensors of one number. Returns false if
// the bytes are not an event; the scalars before the error are still added.
bool ReadEvent(std::string_view bytes, PointSink* sink);

// Returns the Unix time in seconds at which the event was written. If the bytes are not an event or
// have no time, returns nullopt.
std::optional<double> EventTime(std::string_view bytes);

}  // namespace plumbline::audit
