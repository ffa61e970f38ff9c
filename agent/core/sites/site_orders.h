// What the server asks of one site beyond the cadence: elements at each n-th step for a while, and
// at the step of a capsule.
#pragma once

#include <atomic>
#include <cstdint>

namespace plumbline::agent {

// Written by the stream thread, for steps that have not begun; read by any.
class SiteOrders {
 public:
  static constexpr int64_t kNever = -1;

  void TakeAt(int64_t step) { capsule_step_.store(step, std::memory_order_release); }
  int64_t capsule_step() const { return capsule_step_.load(std::memory_order_acquire); }

  // Elements at multiples of `every` from `from` to `until`.
  void Sample(int64_t from, int64_t until, int64_t every);
  void Forget();

  // Does this step keep elements? `stretch`, the governor's word, thins out what was asked for, but
  // not a capsule: that is one step.
  bool SampleDue(int64_t step, uint64_t stretch) const;

  // The first step from `step` on that is asked for, or `due` when that comes first.
  int64_t NextDue(int64_t step, int64_t due, uint64_t stretch) const;

 private:
  std::atomic<int64_t> capsule_step_{kNever};
  std::atomic<int64_t> from_{0};
  std::atomic<int64_t> until_{kNever};
  std::atomic<int64_t> every_{1};
};

}  // namespace plumbline::agent
