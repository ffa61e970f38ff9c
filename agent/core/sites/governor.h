// Keeps the agent's cost below its share of the trainer's time.
//
// The cost is the time of due calls on the trainer's threads, each clipped at 10 times its site's
// median (a pre-empted call is not our cost), the time that a binding reports (plumbline_charge),
// and the CPU time of our own threads. A step pays more than that, by evicted caches and by ranks
// that wait for a delayed one, so the cost counts kPaidPerCounted times. Once a second it is
// compared with the elapsed time. Above the budget, sites become due at every S-th of the steps
// that the cadence would measure. S is the least power of two that brings the cost below the
// budget. It is halved again if the cost would then leave a fifth of the budget free. Ranks may
// differ in S: because S is a power of two, they still have common steps. An explicit `every` is
// the trainer's request and is not governed.
//
// A GPU's time is limited to the same share: the time of the probes' launches there, measured by
// the GPU's clock for sampled calls, and taken from the site's sampled calls for others. The larger
// of the two costs counts.
#pragma once

#include <atomic>
#include <cstdint>

namespace plumbline::agent {

inline constexpr double kDefaultBudget = 0.01;  // of the step time of a trainer on the CPU

// A site's part: tracks the median of its calls' times, step by step.
class CallCost {
 public:
  // Returns the call's time, clipped. Thread-safe.
  uint64_t Clip(uint64_t ns);
  uint64_t median_ns() const { return median_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kClip = 10;
  std::atomic<uint64_t> median_{0};
};

class Governor {
 public:
  static constexpr uint64_t kMaxStretch = 1 << 12;
  static constexpr uint64_t kIntervalNs = 1'000'000'000;
  // Larger than the measured factor of 1.3 (docs/measurements/precision.md).
  static constexpr double kPaidPerCounted = 2;

  // budget: share in (0, 1]; 1 and more: no limit.
  explicit Governor(double budget) : budget_(budget) {}

  // Adds the time of a due call on a trainer's thread. Thread-safe.
  void Charge(uint64_t ns) { calls_ns_.fetch_add(ns, std::memory_order_relaxed); }

  // Adds the time of a measured call on a GPU. Thread-safe.
  void ChargeDevice(uint64_t ns) { device_ns_.fetch_add(ns, std::memory_order_relaxed); }

  // Returns true if it is time for Look. Like Look, called by the stepping thread only.
  bool Due(uint64_t now_ns) const { return now_ns - looked_ns_ >= kIntervalNs; }

  // Updates the stretch. `threads_ns`: CPU time of our threads since the process began. Returns
  // true if the stretch changed.
  bool Look(uint64_t now_ns, uint64_t threads_ns);

  uint64_t stretch() const { return stretch_; }
  double share() const { return share_; }  // cost as a share of the time before the last poll

 private:
  const double budget_;
  std::atomic<uint64_t> calls_ns_{0};
  std::atomic<uint64_t> device_ns_{0};
  uint64_t looked_ns_ = 0;
  uint64_t threads_ns_ = 0;
  uint64_t stretch_ = 1;
  double share_ = 0;
};

}  // namespace plumbline::agent
