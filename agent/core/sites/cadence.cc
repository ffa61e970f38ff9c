#include "agent/core/sites/cadence.h"

#include <algorithm>
#include <bit>

namespace plumbline::agent {
namespace {

// Returns the smallest power of two not below `from` with bytes <= allowance * every * period.
uint64_t PeriodFor(uint64_t bytes, uint64_t allowance, uint64_t every, uint64_t from) {
  constexpr uint64_t kLongest = uint64_t{1} << 40;
  uint64_t period = from;
  while (period < kLongest && bytes / every / period >= std::max<uint64_t>(allowance, 1) &&
         bytes > allowance * every * period) {
    period *= 2;
  }
  return period;
}

}  // namespace

bool Cadence::SampleDue(int64_t step) const {
  if (step < 0) return false;
  const auto j = static_cast<uint64_t>(step / every_);
  const uint64_t period = sample_period();
  return j < kOpening || std::has_single_bit(j) || j == Picked(j / period, period);
}

int64_t Cadence::FirstDue(int64_t step) const {
  const uint64_t stride = summary_period() * stretch_.load(std::memory_order_relaxed);
  const auto from = static_cast<uint64_t>((std::max<int64_t>(step, 0) + every_ - 1) / every_);
  uint64_t j = Picked(from / stride, stride);
  if (j < from) j = Picked(from / stride + 1, stride);
  return static_cast<int64_t>(j) * every_;
}

void Cadence::AtStepEnd(uint64_t sample_bytes, uint64_t summary_bytes) {
  const auto every = static_cast<uint64_t>(every_);
  const uint64_t q = PeriodFor(summary_bytes, budget_ - budget_ / 4, every, summary_period());
  const uint64_t spent = summary_bytes / every / q;
  const uint64_t left = budget_ > spent ? budget_ - spent : 0;
  const uint64_t p = PeriodFor(sample_bytes, left, every, std::max(sample_period(), q));
  summary_period_.store(q, std::memory_order_relaxed);
  sample_period_.store(p, std::memory_order_relaxed);
}

}  // namespace plumbline::agent
