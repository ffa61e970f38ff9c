// One record of an event file (tensorflow.Event): the scalars that it holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// Adds the event's scalars to the sink: simple values, and tensors of one number. False where the
// bytes are no event; what was read before that is added all the same.
bool ReadEvent(std::string_view bytes, PointSink* sink);

// Seconds of Unix time at which the event was written; nullopt: the bytes are no event, or do not
// say.
std::optional<double> EventTime(std::string_view bytes);

}  // namespace plumbline::audit
