// Checks what the child process of a rule file sends. Thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "audit/steps/step_watcher.h"

namespace plumbline::audit {

// A rule of a file, as the child's hello declares it.
struct OwnRule {
  std::string name;                // the id is user/NAME
  std::vector<std::string> reads;  // globs over the op of a site
};

// Returns "user/NAME".
std::string OwnRuleId(const std::string& name);

// Reads {"rules":[{"name":"…","reads":["…"]}]}. Returns InvalidArgument with what was expected if
// it is not so, if a name occurs twice, or if there are more than 64 rules.
absl::StatusOr<std::vector<OwnRule>> ReadOwnRules(const nlohmann::json& hello);

// Reads a verdict of a rule. Strength is heuristic. Level error needs a measured share of false
// alarms. Returns InvalidArgument with what was expected if a field is missing, has another type,
// or is too long.
absl::StatusOr<WatcherVerdict> ReadOwnVerdict(const nlohmann::json& line);

}  // namespace plumbline::audit
