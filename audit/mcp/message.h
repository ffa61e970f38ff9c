// JSON-RPC 2.0 messages as the Model Context Protocol uses them: one message per line. Thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace plumbline::audit::mcp {

using Json = nlohmann::ordered_json;

inline constexpr int kParseError = -32700, kInvalidRequest = -32600, kMethodNotFound = -32601,
                     kInvalidParams = -32602, kInternalError = -32603, kResourceNotFound = -32002;
inline constexpr size_t kMostNesting = 64;
inline constexpr size_t kMostIdBytes = 1024;

// The error answer to a request.
struct Refusal {
  int code = kInternalError;
  std::string message;
};

// Parses a message. Returns InvalidArgument if it is not JSON or not UTF-8, has a number outside
// the range of double, or is nested deeper than kMostNesting.
absl::StatusOr<Json> ParseMessage(std::string_view line);

// Returns the id of a request: a string or an integer. If there is no valid id, returns nullopt.
std::optional<Json> IdOf(const Json& message);

Json ResultMessage(const Json& id, Json result);
// Returns an error message. If the id could not be read, the message has no id (the protocol's
// schema has no null id).
Json ErrorMessage(const std::optional<Json>& id, const Refusal& refusal);
Json NotificationMessage(const char* method, Json params);

// Returns the message on one line as valid UTF-8, without a line end.
std::string LineOf(const Json& message);

}  // namespace plumbline::audit::mcp
