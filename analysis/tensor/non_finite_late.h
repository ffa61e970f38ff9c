// What ranks reported after their steps had been closed over them, rank by rank and step by step,
// looked at by itself: which of it is news. Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/tensor/non_finite_trace.h"
#include "base/archive.h"

namespace plumbline::rules {

// A step of one rank.
struct LateStep {
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  uint32_t rank = 0;
  int64_t step = 0;
  NonFiniteTrace trace;
};

// All that came late since it was asked last; steps come whole, one after another.
class LateSteps {
 public:
  void Take(const SiteStep& step);
  std::vector<LateStep> TakeAll() { return std::exchange(steps_, {}); }

 private:
  std::vector<LateStep> steps_;  // empty between the engine's calls
};

// Of one group: since which step it is open by what came in time, and which ranks are open by what
// came late: what follows without a clean step between is the same incident.
class LateMemory {
 public:
  void Opened(int64_t step) { since_ = step; }
  // Whether a step with a value that is no number is news, and not the flood of one that was told.
  bool IsNews(const LateStep& late, bool open);
  // The rank's late step was clean.
  void Clean(uint32_t rank) { ranks_.erase(rank); }

  void Persist(Archive& a) { a(since_, ranks_); }

 private:
  int64_t since_ = 0;
  std::set<uint32_t> ranks_;
};

}  // namespace plumbline::rules
