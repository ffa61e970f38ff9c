// Holds the arguments of a call to the schema that its tool declares. Thread-safe.
#pragma once

#include <string>

#include "audit/mcp/message.h"

namespace plumbline::audit::mcp {

// Empty, or what is wrong: "run: expected a string, found an array". Understands what our schemas
// use: an object of required and other properties; strings (maxLength, enum), integers (minimum,
// maximum), booleans, arrays of strings (maxItems).
std::string CheckArguments(const Json& schema, const Json& arguments);

// The argument, or what it is by default.
std::string TextArgument(const Json& arguments, const char* name);
int64_t NumberArgument(const Json& arguments, const char* name, int64_t otherwise);
bool FlagArgument(const Json& arguments, const char* name, bool otherwise);

}  // namespace plumbline::audit::mcp
