// What an assistant may call. Each tool says what it takes and gives as JSON schemas.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "audit/mcp/message.h"

namespace plumbline::audit::mcp {

// How far a long call has come.
using OnProgress = std::function<void(double done, double total)>;

struct Tool {
  const char* name;
  const char* title;
  const char* description;
  const char* input;   // JSON schema of the arguments, an object
  const char* output;  // JSON schema of the answer, an object
  // Arguments have been held to `input`. An error is told to the assistant in its words.
  std::function<absl::StatusOr<Json>(const Json& arguments, const OnProgress& progress)> call;
};

// What a server knows: list_runs, list_incidents, get_finding, get_series. `server`: HOST:PORT;
// empty: each answers that there is none.
std::vector<Tool> ServerTools(const std::string& server);

// What needs no server: explain_rule, audit_path.
std::vector<Tool> LocalTools();

// A rule by its id, or by its name alone where only one rule has it; {"id", "status", "level",
// "title", "page"}. NotFound: says which rule may be meant.
absl::StatusOr<Json> RuleValue(const std::string& rule);

}  // namespace plumbline::audit::mcp
