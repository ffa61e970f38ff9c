#include "agent/core/sites/series_registry.h"

#include <utility>

namespace plumbline::agent {

uint64_t SeriesRegistry::Add(v1::SeriesSet set) {
  const MutexLock lock(mutex_);
  if (sets_.size() >= kMaxSets) return 0;
  set.set_id(sets_.size() + 1);
  sets_.push_back(std::move(set));
  return sets_.size();
}

std::optional<v1::SeriesSet> SeriesRegistry::Find(uint64_t id) const {
  const MutexLock lock(mutex_);
  if (id == 0 || id > sets_.size()) return std::nullopt;
  return sets_[id - 1];
}

std::vector<v1::SeriesSet> SeriesRegistry::All() const {
  const MutexLock lock(mutex_);
  return sets_;
}

}  // namespace plumbline::agent
