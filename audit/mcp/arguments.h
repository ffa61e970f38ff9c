// Checks the arguments of a call against the schema that its tool declares. Thread-safe.
#pragma once

#include <string>

#include "audit/mcp/message.h"

namespace plumbline::audit::mcp {

// Returns an error message such as "run: expected a string, found an array", or "" if the arguments
// are valid. Supports the features that our schemas use: an object with required and optional
// properties; strings (maxLength, enum), integers (minimum, maximum), booleans, arrays of strings
// (maxItems).
std::string CheckArguments(const Json& schema, const Json& arguments);

// Each returns the argument; if it is absent, its default.
std::string TextArgument(const Json& arguments, const char* name);
int64_t NumberArgument(const Json& arguments, const char* name, int64_t otherwise);
bool FlagArgument(const Json& arguments, const char* name, bool otherwise);

}  // namespace plumbline::audit::mcp
