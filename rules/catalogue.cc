#include "rules/catalogue.h"

#include <algorithm>

#include "base/near_word.h"

namespace plumbline::rules {
namespace {

constexpr v1::Level kNote = v1::LEVEL_NOTE;
constexpr v1::Level kWarning = v1::LEVEL_WARNING;
constexpr v1::Level kError = v1::LEVEL_ERROR;

std::vector<CatalogueEntry> Build() {
  std::vector<CatalogueEntry> list;
#define PLUMB_RULE(id, symbol) list.push_back(symbol());
#define PLUMB_PLANNED(id, level, title)
#include "rules/rule_list.inc"
#undef PLUMB_RULE
#undef PLUMB_PLANNED
  return list;
}

std::vector<PlannedRule> Plans() {
  return {
#define PLUMB_RULE(id, symbol)
#define PLUMB_PLANNED(id, level, title) {id, level, title},
#include "rules/rule_list.inc"
#undef PLUMB_RULE
#undef PLUMB_PLANNED
  };
}

std::vector<std::string_view> KnownIds() {
  std::vector<std::string_view> ids;
  for (const CatalogueEntry& entry : Catalogue()) ids.emplace_back(entry.info->id);
  for (const PlannedRule& rule : PlannedRules()) ids.emplace_back(rule.id);
  return ids;
}

}  // namespace

const std::vector<CatalogueEntry>& Catalogue() {
  static const auto* const catalogue = new std::vector<CatalogueEntry>(Build());
  return *catalogue;
}

const std::vector<PlannedRule>& PlannedRules() {
  static const auto* const plans = new std::vector<PlannedRule>(Plans());
  return *plans;
}

const CatalogueEntry* FindRule(std::string_view id) {
  for (const CatalogueEntry& entry : Catalogue()) {
    if (id == entry.info->id) return &entry;
  }
  return nullptr;
}

const PlannedRule* FindPlannedRule(std::string_view id) {
  for (const PlannedRule& rule : PlannedRules()) {
    if (id == rule.id) return &rule;
  }
  return nullptr;
}

bool SomeRuleMatches(std::string_view glob) {
  if (glob.starts_with("user/")) return true;  // rules of the user: the catalogue has none
  const std::vector<std::string_view> ids = KnownIds();
  return std::any_of(ids.begin(), ids.end(),
                     [&](std::string_view id) { return GlobMatch(glob, id); });
}

std::string_view NearestRule(std::string_view id) {
  std::string_view best;
  size_t least = std::string_view::npos;
  for (const std::string_view known : KnownIds()) {
    // Users may omit the group, so compare with the bare name too.
    for (const std::string_view name : {known, known.substr(known.find('/') + 1)}) {
      const size_t distance = EditDistance(id, name);
      if (!IsNear(distance, id, name) || distance >= least) continue;
      least = distance;
      best = known;
    }
  }
  return best;
}

bool GlobMatch(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*') {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace plumbline::rules
