// The existing rules and the planned ones, from rules/rule_list.inc.
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

// A rule that this version does not have, but whose id is reserved.
struct PlannedRule {
  const char* id;
  v1::Level level;  // the highest level that it may reach
  const char* title;
};

// Return the rules in the order of rule_list.inc. Static storage, immutable, thread-safe.
const std::vector<CatalogueEntry>& Catalogue();
const std::vector<PlannedRule>& PlannedRules();

// Return nullptr if there is no such rule.
const CatalogueEntry* FindRule(std::string_view id);
const PlannedRule* FindPlannedRule(std::string_view id);

// Returns true if the glob matches an existing or planned rule.
bool SomeRuleMatches(std::string_view glob);

// Returns the existing or planned id that is probably meant, given with or without its group. If
// none is close, returns an empty string.
std::string_view NearestRule(std::string_view id);

// Matches a shell glob over ids: '*' is any run of characters, '?' is one. "causality/*", "*leak*".
bool GlobMatch(std::string_view pattern, std::string_view text);

// Each rule's file defines its entry under the symbol that rule_list.inc names.
#define PLUMB_RULE(id, symbol) CatalogueEntry symbol();
#define PLUMB_PLANNED(id, level, title)
#include "rules/rule_list.inc"
#undef PLUMB_RULE
#undef PLUMB_PLANNED

}  // namespace plumbline::rules
