// The rules there are, and those that are planned, from rules/rule_list.inc.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "rules/rule.h"

namespace plumbline::rules {

struct CatalogueEntry {
  const RuleInfo* info = nullptr;
  std::unique_ptr<Rule> (*make)(const Options&) = nullptr;
};

// A rule that this version does not have, but whose id is taken.
struct PlannedRule {
  const char* id;
  v1::Level level;  // the highest it may reach
  const char* title;
};

// Both in the order of rule_list.inc. Static storage, immutable, thread-safe.
const std::vector<CatalogueEntry>& Catalogue();
const std::vector<PlannedRule>& PlannedRules();

// nullptr when there is no such rule.
const CatalogueEntry* FindRule(std::string_view id);
const PlannedRule* FindPlannedRule(std::string_view id);

// Does the glob match a rule, or a planned one?
bool SomeRuleMatches(std::string_view glob);

// The known id, planned or not, that is likely meant, with or without its group; empty when none is
// near.
std::string_view NearestRule(std::string_view id);

// Shell glob over ids: '*' any run of characters, '?' one. "causality/*", "*leak*".
bool GlobMatch(std::string_view pattern, std::string_view text);

// Each built rule's file defines its entry under the symbol that rule_list.inc names.
#define PLUMB_RULE(id, symbol) CatalogueEntry symbol();
#define PLUMB_PLANNED(id, level, title)
#include "rules/rule_list.inc"
#undef PLUMB_RULE
#undef PLUMB_PLANNED

}  // namespace plumbline::rules
