// The server's requests for one site beyond the cadence: elements at every n-th step for some time,
// and at the step of a capsule.
#pragma once

#include <atomic>
#include <cstdint>

namespace plumbline::agent {

// Written by the stream thread, for steps that have not begun; read by any thread.
class SiteOrders {
 public:
  static constexpr int64_t kNever = -1;

  void TakeAt(int64_t step) { capsule_step_.store(step, std::memory_order_release); }
  int64_t capsule_step() const { return capsule_step_.load(std::memory_order_acquire); }

  // Requests elements at multiples of `every` from `from` to `until`.
  void Sample(int64_t from, int64_t until, int64_t every);
  void Forget();

  // Returns true if this step keeps elements. `stretch`, set by the governor, thins out the
  // requests, but not a capsule, which is one step.
  bool SampleDue(int64_t step, uint64_t stretch) const;

  // Returns the first requested step from `step` on, or `due` if that comes first.
  int64_t NextDue(int64_t step, int64_t due, uint64_t stretch) const;

 private:
  std::atomic<int64_t> capsule_step_{kNever};
  std::atomic<int64_t> from_{0};
  std::atomic<int64_t> until_{kNever};
  std::atomic<int64_t> every_{1};
};

}  // namespace plumbline::agent
