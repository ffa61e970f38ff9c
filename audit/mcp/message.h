// JSON-RPC 2.0 as the Model Context Protocol uses it: one message a line. Thread-safe.
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

// A request that cannot be answered as asked.
struct Refusal {
  int code = kInternalError;
  std::string message;
};

// InvalidArgument: no JSON, no UTF-8, a number beyond every double, or nested deeper than
// kMostNesting.
absl::StatusOr<Json> ParseMessage(std::string_view line);

// The id of a request: a string or an integer. nullopt: there is none that can be answered.
std::optional<Json> IdOf(const Json& message);

Json ResultMessage(const Json& id, Json result);
// Without an id where it could not be read (the protocol's schema knows no null id).
Json ErrorMessage(const std::optional<Json>& id, const Refusal& refusal);
Json NotificationMessage(const char* method, Json params);

// On one line, valid UTF-8 whatever is in it, without an end of line.
std::string LineOf(const Json& message);

}  // namespace plumbline::audit::mcp
