#include "agent/core/sites/losses.h"

#include <utility>

#include "base/relaxed.h"

namespace plumbline::agent {
const char* LossCauseName(LossCause cause) {
  constexpr const char* kNames[kLossCauses] = {"ring-full",
                                               "invalid",
                                               "device-kernels-not-loaded",
                                               "device-tensor-not-read",
                                               "after-step-end",
                                               "too-many-sites",
                                               "too-many-open-spans",
                                               "device-starting",
                                               "device-ring-full",
                                               "device-streams",
                                               "stream-capture",
                                               "device-error",
                                               "device-unfinished",
                                               "sample-ring-full",
                                               "too-many-spans",
                                               "captured-calls",
                                               "device-context",
                                               "stage-marks"};
  return kNames[static_cast<size_t>(cause)];
}

void LossCounters::Add(LossCause cause, int64_t step) {
  Counter& c = counters_[static_cast<size_t>(cause)];
  int64_t seen = c.first.load(kRelaxed);
  while (step < seen && !c.first.compare_exchange_weak(seen, step, kRelaxed)) {
  }
  seen = c.last.load(kRelaxed);
  while (step > seen && !c.last.compare_exchange_weak(seen, step, kRelaxed)) {
  }
  // The count is stored last, with release order, so that a reader of the count sees the steps that
  // belong to it.
  c.count.fetch_add(1, std::memory_order_release);
}

LossCounters::Taken LossCounters::Take(LossCause cause) {
  Counter& c = counters_[static_cast<size_t>(cause)];
  Taken taken;
  taken.count = c.count.exchange(0, std::memory_order_acquire);
  if (taken.count == 0) return taken;
  taken.step_first = c.first.exchange(kNone, kRelaxed);
  taken.step_last = c.last.exchange(-kNone, kRelaxed);
  // An Add may have noted its step before our last Take and its count after it.
  if (taken.step_first == kNone) taken.step_first = c.last_taken;
  if (taken.step_last == -kNone) taken.step_last = c.last_taken;
  // One bound may belong to such an Add and the other not. The range still contains both.
  if (taken.step_first > taken.step_last) std::swap(taken.step_first, taken.step_last);
  c.last_taken = taken.step_last;
  return taken;
}

}  // namespace plumbline::agent
