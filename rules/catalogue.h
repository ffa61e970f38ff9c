// Every rule id the product knows, built or planned, from rules/rule_list.inc.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "rules/rule.h"

namespace plumbline::rules {

struct CatalogueEntry {
  const RuleInfo* info = nullptr;
  std::unique_ptr<Rule> (*make)(const Options&) = nullptr;  // nullptr while planned
};

// In the order of rule_list.inc. Static storage, immutable, thread-safe.
const std::vector<CatalogueEntry>& Catalogue();

// nullptr when there is no such rule.
const CatalogueEntry* FindRule(std::string_view id);

// The known id that is likely meant, with or without its group; empty when none is near.
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
