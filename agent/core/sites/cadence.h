// Which steps are measured and which also keep raw rows. No clock and no randomness: every rank
// that sees the same shapes decides the same, so that samples of one step join across ranks.
//
// With n = `every` (1 unless set) and j = step / n, a step is *sampled* when
//     j < 8,  or j is a power of two,  or j is picked of its P steps,
// and sites are *due* (summaries) at the steps n * j where j is picked of its Q steps. P and Q are
// powers of two, 1 at first, and only rise: at the end of a step, from the largest bytes that the
// sites have shown in one step,
//     Q = the smallest with  summary_bytes / (n * Q) <= 3/4 of the budget,
//     P = the smallest with  sample_bytes / (n * P)  <= what the budget leaves then, and P >= Q.
// Sizes are those of the shapes not of what was encoded, for they must be
// equal on every rank. Ranks whose shapes differ get powers of two too: they join at the larger P.
#pragma once

#include <atomic>
#include <cstdint>

namespace plumbline::agent {

// Which step is picked of a block: those from block * stride on, stride (a power of two) of them.
// With the first of each, a site that lives in odd steps alone (a critic, a layer that is dropped
// every other step) would never be met. So the picked step's low bits follow from the block's
// number, by a recurrence of degree three: bit i is the sum of bits i+1 and i+3. What is picked of
// 2P steps is one of those that are picked of P. Blocks 0, 1, 2, 4, 8, ... have their first one, so
// that short runs have their second look early. Of a site that lives in one of m steps, m = 2 to 8,
// 24 picks in a row meet one, wherever they begin (counted for strides up to 256).
constexpr uint64_t Picked(uint64_t block, uint64_t stride) {
  if ((block & (block - 1)) == 0) return block * stride;
  uint64_t j = block;
  for (; stride > 1; stride /= 2) j = 2 * j + ((j ^ (j >> 2)) & 1);
  return j;
}

class Cadence {
 public:
  static constexpr int64_t kOpening = 8;  // steps at the start that are all sampled

  // every >= 1; traffic_bytes >= 1: the budget a step.
  Cadence(uint32_t every, uint64_t traffic_bytes) : every_(every), budget_(traffic_bytes) {}

  // Any thread. The answer for one step changes only within AtStepEnd of an earlier one.
  bool SampleDue(int64_t step) const;

  // The first step from `step` on, and after `step`, at which sites are due. Any thread.
  int64_t FirstDue(int64_t step) const;
  int64_t NextDue(int64_t step) const { return FirstDue(step + 1); }

  // Makes sites due at one of `stretch` (a power of two) of the steps that are due by size alone:
  // the governor's word. The stepping thread only.
  void Stretch(uint64_t stretch) { stretch_.store(stretch, std::memory_order_relaxed); }
  uint64_t stretch() const { return stretch_.load(std::memory_order_relaxed); }  // any thread

  // The sums over all sites of the most bytes each has shown in one step. The stepping thread only.
  void AtStepEnd(uint64_t sample_bytes, uint64_t summary_bytes);

  uint64_t sample_period() const { return sample_period_.load(std::memory_order_relaxed); }
  uint64_t summary_period() const { return summary_period_.load(std::memory_order_relaxed); }

 private:
  const int64_t every_;
  const uint64_t budget_;
  std::atomic<uint64_t> sample_period_{1};   // P
  std::atomic<uint64_t> summary_period_{1};  // Q
  std::atomic<uint64_t> stretch_{1};
};

}  // namespace plumbline::agent
