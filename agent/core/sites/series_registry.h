// The lists of series that this process has declared: a stream sends each once in a batch, and all
// of them again with every hello.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::agent {

// Thread-safe.
class SeriesRegistry {
 public:
  // The largest number of lists, for a process that logs a new combination in each step.
  static constexpr size_t kMaxSets = 64;

  // Gives the list its number and keeps it; returns 0 if there are too many.
  uint64_t Add(v1::SeriesSet set);
  std::optional<v1::SeriesSet> Find(uint64_t id) const;
  std::vector<v1::SeriesSet> All() const;

 private:
  mutable Mutex mutex_;
  std::vector<v1::SeriesSet> sets_ PLUMB_GUARDED_BY(mutex_);  // number i + 1
};

}  // namespace plumbline::agent
