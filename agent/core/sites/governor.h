// Keeps what the agent costs below its share of the trainer's time.
//
// Cost is the time that due calls take on the trainer's threads, each clipped at 10 times its
// site's median (a pre-empted call is not ours), what a binding says it spent around them
// (plumbline_charge), and the CPU time of our own threads. A step pays more than that, in caches
// that calls evict and in ranks that wait for the one that was held, so it counts kPaidPerCounted
// times. Once a second it is set against the time that passed. Above the budget, sites become due
// at every S-th of the steps that the cadence would measure; S is the least power of two that
// brings the cost below, and it is halved again when half of it would do with a fifth to spare.
// Ranks may differ in S: being powers of two, they still meet. An explicit `every` is what the
// trainer asked for, and is not governed.
//
// A GPU's time is governed by the same share: what the probes' launches took there, of sampled
// calls by the GPU's own clock and of others as the site's sampled ones take. The dearer of the two
// counts.
#pragma once

#include <atomic>
#include <cstdint>

namespace plumbline::agent {

inline constexpr double kDefaultBudget = 0.01;  // of a CPU trainer's step time

// A site's part: the median of its calls' times, followed step by step.
class CallCost {
 public:
  // The call's time, clipped. Any thread.
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
  // Above what was measured side by side, 1.3 times (docs/measurements/precision.md).
  static constexpr double kPaidPerCounted = 2;

  // budget: share in (0, 1]; 1 and more: nothing is governed.
  explicit Governor(double budget) : budget_(budget) {}

  // A due call on a trainer's thread took this long. Any thread.
  void Charge(uint64_t ns) { calls_ns_.fetch_add(ns, std::memory_order_relaxed); }

  // A measured call took a GPU this long. Any thread.
  void ChargeDevice(uint64_t ns) { device_ns_.fetch_add(ns, std::memory_order_relaxed); }

  // Is it time to look? The stepping thread only, as Look.
  bool Due(uint64_t now_ns) const { return now_ns - looked_ns_ >= kIntervalNs; }

  // `threads_ns`: CPU time of our threads since the process began. True when the stretch changed.
  bool Look(uint64_t now_ns, uint64_t threads_ns);

  uint64_t stretch() const { return stretch_; }
  double share() const { return share_; }  // paid, of the time before the last look

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
