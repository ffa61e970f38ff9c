#include "rules/catalogue.h"

#include <algorithm>
#include <numeric>

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

// Levenshtein distance, one row at a time.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
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
  size_t best_distance = std::max<size_t>(3, id.size() / 3) + 1;
  for (const CatalogueEntry& entry : Catalogue()) {
    const std::string_view known = entry.info->id;
    const std::string_view name = known.substr(known.find('/') + 1);
    // People leave the group away: compare with the bare name too.
    const size_t distance = std::min(EditDistance(id, known), EditDistance(id, name));
    if (distance < best_distance) {
      best_distance = distance;
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
