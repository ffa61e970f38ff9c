#include "analysis/tensor/non_finite_late.h"

namespace plumbline::analysis {

void LateSteps::Take(const SiteStep& step) {
  if (step.items.empty()) return;
  const uint32_t rank = step.items.front().source->rank();
  if (steps_.empty() || steps_.back().attempt != step.attempt || steps_.back().role != step.role ||
      steps_.back().rank != rank || steps_.back().step != step.step) {
    steps_.push_back({step.attempt, step.role, rank, step.step, {}});
  }
  LateStep& late = steps_.back();
  for (const Item& item : step.items) late.trace.Take(step, item);
}

bool LateMemory::IsNews(const LateStep& late, bool open) {
  const bool reported = !ranks_.insert(late.rank).second;
  return !reported && !(open && since_ <= late.step);
}

}  // namespace plumbline::analysis
