#include "analysis/replicas/equal_losses.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace plumbline::analysis {

bool EqualLosses::Take(const SiteStep& step) {
  std::map<uint32_t, double> values;
  for (const Item& item : step.items) {
    if (item.evidence->has_scalar()) values[item.source->rank()] = item.evidence->scalar().value();
  }
  const auto number = [](const auto& value) { return std::isfinite(value.second); };
  if (values.size() < 2 || !std::all_of(values.begin(), values.end(), number)) return false;
  // If the ranks or the attempt differ, start again.
  const bool same_ranks =
      values.size() == classes_.size() &&
      std::equal(values.begin(), values.end(), classes_.begin(),
                 [](const auto& a, const auto& b) { return a.first == b.first; });
  if (!same_ranks || attempt_ != step.attempt) steps_ = 0;
  attempt_ = step.attempt;
  if (steps_ == 0) {
    classes_.clear();
    for (const auto& [rank, value] : values) classes_[rank] = values.begin()->first;
    changes_ = 0;
    step_first_ = step.step;
    last_.clear();
    values_.clear();
  }
  // Ranks that were equal before and are not now are different. A class is named by its lowest
  // rank.
  std::map<std::pair<uint32_t, double>, std::vector<uint32_t>> alike;
  for (const auto& [rank, value] : values) alike[{classes_[rank], value}].push_back(rank);
  bool shares = false, changed = false;
  for (const auto& [key, ranks] : alike) {
    for (const uint32_t rank : ranks) classes_[rank] = ranks.front();
    if (ranks.size() < 2) continue;
    shares = true;
    const auto last = last_.find(ranks.front());
    changed |= last != last_.end() && last->second != key.second;
    if (values_.size() < kValues) values_.insert(key.second);
  }
  last_ = std::move(values);
  ++steps_;
  changes_ += changed ? 1 : 0;
  if (!shares) steps_ = 0;
  const bool enough = steps_ >= kSteps && changes_ >= kChanges && values_.size() >= kValues;
  if (!enough && steps_ >= 2 * kSteps) steps_ = 0;
  return enough;
}

uint32_t EqualLosses::ClassOf(uint32_t rank) const {
  const auto at = classes_.find(rank);
  return at == classes_.end() ? rank : at->second;
}

}  // namespace plumbline::analysis
