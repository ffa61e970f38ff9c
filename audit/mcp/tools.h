// The tools that an assistant may call. Each declares its input and output as JSON schemas.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "audit/mcp/message.h"

namespace plumbline::audit::mcp {

// Called with the progress of a long call.
using OnProgress = std::function<void(double done, double total)>;

struct Tool {
  const char* name;
  const char* title;
  const char* description;
  const char* input;   // JSON schema of the arguments, an object
  const char* output;  // JSON schema of the answer, an object
  // Runs the tool. The arguments have been checked against `input`. The assistant gets the text of
  // an error.
  std::function<absl::StatusOr<Json>(const Json& arguments, const OnProgress& progress)> call;
};

// Returns the tools that query a server: list_runs, list_incidents, get_finding, get_series.
// `server` is HOST:PORT. If it is empty, each tool answers that there is none.
std::vector<Tool> ServerTools(const std::string& server);

// Returns the tools that need no server: explain_rule, audit_path.
std::vector<Tool> LocalTools();

// Returns {"id", "status", "level", "title", "page"} of a rule, by its id, or by its name if only
// one rule has it. If there is none, returns NotFound with rules that may be meant.
absl::StatusOr<Json> RuleValue(const std::string& rule);

}  // namespace plumbline::audit::mcp
