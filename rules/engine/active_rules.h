// Selects the rules that run, and sets their options.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rules/catalogue.h"

namespace plumbline::rules {

struct ActiveRule {
  const CatalogueEntry* entry;
  Options options;
};

// Returns the selected rules in the catalogue's order. If `globs` is empty, returns every built
// rule. Returns InvalidArgument, with the nearest id, if a glob matches no rule or only planned
// ones.
absl::StatusOr<std::vector<ActiveRule>> SelectRules(const std::vector<std::string>& globs);

// Applies "RULE.OPTION=VALUE". Returns InvalidArgument if the setting is malformed or the rule does
// not run.
absl::Status ApplySetting(const std::string& setting, std::vector<ActiveRule>& active);

}  // namespace plumbline::rules
