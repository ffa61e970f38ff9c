// Which rules run, and with what options.
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

// In the catalogue's order; no globs: every built rule. InvalidArgument, with the nearest id, where
// a glob matches nothing, and where all that it matches is planned.
absl::StatusOr<std::vector<ActiveRule>> SelectRules(const std::vector<std::string>& globs);

// "RULE.OPTION=VALUE". InvalidArgument where it is none, or the rule does not run.
absl::Status ApplySetting(const std::string& setting, std::vector<ActiveRule>& active);

}  // namespace plumbline::rules
