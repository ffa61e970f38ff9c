// Bounds on what a tool answers: an assistant reads it whole. Thread-safe.
#pragma once

#include <cstddef>

#include "audit/mcp/message.h"

namespace plumbline::audit::mcp {

inline constexpr size_t kMostAnswerBytes = 512u << 10;  // of a tool's answer as JSON

// Leaves the first elements of object[list], at most `most_elements`, as many as fit into what is
// left of kMostAnswerBytes beside the rest of the object; object[omitted] says how many are gone.
void FitList(const char* list, const char* omitted, size_t most_elements, Json* object);

}  // namespace plumbline::audit::mcp
