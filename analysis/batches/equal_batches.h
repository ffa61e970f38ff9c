// Detects ranks that are trained on the same rows, step after step.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "base/archive.h"

namespace plumbline::analysis {

// The digests of one role's ranks. Only ranks of one data-parallel group are compared.
class EqualBatches {
 public:
  static constexpr uint64_t kSteps = 16;  // consecutive steps in which digests must be equal
  static constexpr size_t kDigests = 8;   // different digests in these steps

  void Group(uint32_t rank, double lowest) { groups_[rank] = lowest; }
  // Takes a step's digests by rank; 0 means that no rows but empty ones were seen.
  void Take(uint32_t attempt, int64_t step, const std::map<uint32_t, uint64_t>& digests);

  // Returns the groups of ranks with the same rows in all of the newest kSteps steps.
  std::vector<std::vector<uint32_t>> Same() const;
  int64_t step_first() const { return steps_.empty() ? 0 : steps_.front(); }

  void Persist(Archive& a) { a(attempt_, groups_, steps_, newest_); }

 private:
  uint32_t attempt_ = 0;
  std::map<uint32_t, double> groups_;                // by rank: the lowest rank of its group
  std::deque<int64_t> steps_;                        // the newest steps, at most kSteps
  std::map<uint32_t, std::deque<uint64_t>> newest_;  // by rank: the digests of these steps
};

}  // namespace plumbline::analysis
