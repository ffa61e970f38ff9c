// Judges values that ranks reported after their steps had been closed, rank by rank and step by
// step: decides which of them are new. Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/tensor/non_finite_trace.h"
#include "base/archive.h"

namespace plumbline::analysis {

// One step of one rank.
struct LateStep {
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  uint32_t rank = 0;
  int64_t step = 0;
  NonFiniteTrace trace;
};

// Collects all late steps since the last call of TakeAll. Steps arrive whole, one after another.
class LateSteps {
 public:
  void Take(const SiteStep& step);
  std::vector<LateStep> TakeAll() { return std::exchange(steps_, {}); }

 private:
  std::vector<LateStep> steps_;  // empty between the engine's calls
};

// State of one group: since which step an incident is open in the data that came in time, and on
// which ranks one is open in the late data. If no clean step comes between, further late values
// belong to the same incident.
class LateMemory {
 public:
  void Opened(int64_t step) { since_ = step; }
  // Returns true if a step with a non-finite value is new, and not part of an incident that was
  // already reported.
  bool IsNews(const LateStep& late, bool open);
  // Call if the rank's late step was clean.
  void Clean(uint32_t rank) { ranks_.erase(rank); }

  void Persist(Archive& a) { a(since_, ranks_); }

 private:
  int64_t since_ = 0;
  std::set<uint32_t> ranks_;
};

}  // namespace plumbline::analysis
