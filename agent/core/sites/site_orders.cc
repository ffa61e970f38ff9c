#include "agent/core/sites/site_orders.h"

#include <algorithm>

#include "base/relaxed.h"

namespace plumbline::agent {
void SiteOrders::Sample(int64_t from, int64_t until, int64_t every) {
  until_.store(kNever, std::memory_order_release);  // a concurrent reader sees no request
  from_.store(from, kRelaxed);
  every_.store(std::max<int64_t>(every, 1), kRelaxed);
  until_.store(until, std::memory_order_release);
}

void SiteOrders::Forget() {
  until_.store(kNever, std::memory_order_release);
  TakeAt(kNever);
}

bool SiteOrders::SampleDue(int64_t step, uint64_t stretch) const {
  if (step == capsule_step() && step >= 0) return true;
  if (step > until_.load(std::memory_order_acquire) || step < from_.load(kRelaxed)) return false;
  return step % (every_.load(kRelaxed) * static_cast<int64_t>(stretch)) == 0;
}

int64_t SiteOrders::NextDue(int64_t step, int64_t due, uint64_t stretch) const {
  const int64_t capsule = capsule_step();
  if (capsule >= step) due = std::min(due, capsule);
  const int64_t until = until_.load(std::memory_order_acquire);
  if (step > until) return due;
  const int64_t stride = every_.load(kRelaxed) * static_cast<int64_t>(stretch);
  const int64_t from = std::max(step, from_.load(kRelaxed));
  const int64_t next = (from + stride - 1) / stride * stride;
  return next <= until ? std::min(due, next) : due;
}

}  // namespace plumbline::agent
