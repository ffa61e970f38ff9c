#include "rules/catalogue.h"

#include "base/near_word.h"

namespace plumbline::rules {
namespace {

constexpr v1::Level kNote = v1::LEVEL_NOTE;
constexpr v1::Level kWarning = v1::LEVEL_WARNING;
constexpr v1::Level kError = v1::LEVEL_ERROR;

CatalogueEntry Planned(const RuleInfo* info) { return {info, nullptr}; }

std::vector<CatalogueEntry> Build() {
  std::vector<CatalogueEntry> list;
#define PLUMB_RULE(id, symbol) list.push_back(symbol());
#define PLUMB_PLANNED(id, level, title)                                                \
  {                                                                                    \
    static const RuleInfo info = {id, title, level, RuleStatus::kPlanned, "", "", {}}; \
    list.push_back(Planned(&info));                                                    \
  }
#include "rules/rule_list.inc"
#undef PLUMB_RULE
#undef PLUMB_PLANNED
  return list;
}

}  // namespace

const std::vector<CatalogueEntry>& Catalogue() {
  static const auto* const catalogue = new std::vector<CatalogueEntry>(Build());
  return *catalogue;
}

const CatalogueEntry* FindRule(std::string_view id) {
  for (const CatalogueEntry& entry : Catalogue()) {
    if (id == entry.info->id) return &entry;
  }
  return nullptr;
}

std::string_view NearestRule(std::string_view id) {
  std::string_view best;
  size_t least = std::string_view::npos;
  for (const CatalogueEntry& entry : Catalogue()) {
    const std::string_view known = entry.info->id;
    // People leave the group away: compare with the bare name too.
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
