#include "agent/core/sites/governor.h"

#include <algorithm>

namespace plumbline::agent {

uint64_t CallCost::Clip(uint64_t ns) {
  const uint64_t median = median_.load(std::memory_order_relaxed);
  if (median == 0) {
    median_.store(std::max<uint64_t>(ns, 1), std::memory_order_relaxed);
    return ns;
  }
  // Moves one step towards the side with more calls. At the median both sides have equal numbers.
  const uint64_t step = median / 32 + 1;
  median_.store(ns > median ? median + step : std::max<uint64_t>(median, step + 1) - step,
                std::memory_order_relaxed);
  return std::min(ns, kClip * median);
}

bool Governor::Look(uint64_t now_ns, uint64_t threads_ns) {
  const uint64_t calls = calls_ns_.exchange(0, std::memory_order_relaxed);
  const uint64_t device = device_ns_.exchange(0, std::memory_order_relaxed);
  const uint64_t threads = threads_ns > threads_ns_ ? threads_ns - threads_ns_ : 0;
  const uint64_t elapsed = now_ns - looked_ns_;
  const bool first = looked_ns_ == 0;
  looked_ns_ = now_ns;
  threads_ns_ = std::max(threads_ns, threads_ns_);
  if (first || elapsed == 0) return false;
  share_ = std::max(kPaidPerCounted * static_cast<double>(calls + threads),
                    static_cast<double>(device)) /
           static_cast<double>(elapsed);

  const uint64_t before = stretch_;
  // The cost is proportional to the number of due steps.
  double expected = share_;
  while (expected > budget_ && budget_ < 1 && stretch_ < kMaxStretch) {
    stretch_ *= 2;
    expected /= 2;
  }
  if (stretch_ == before && stretch_ > 1 && 2 * share_ <= 0.8 * budget_) stretch_ /= 2;
  return stretch_ != before;
}

}  // namespace plumbline::agent
