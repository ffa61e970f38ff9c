// Limits the size of a tool's answer, because an assistant reads it whole. Thread-safe.
#pragma once

#include <cstddef>

#include "audit/mcp/message.h"

namespace plumbline::audit::mcp {

inline constexpr size_t kMostAnswerBytes = 512u << 10;  // of an answer as JSON

// Truncates object[list] to at most `most_elements`, and so that the whole object fits into
// kMostAnswerBytes. Sets object[omitted] to the number of removed elements.
void FitList(const char* list, const char* omitted, size_t most_elements, Json* object);

}  // namespace plumbline::audit::mcp
