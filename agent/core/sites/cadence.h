// Decides which steps are measured and which also keep raw rows. It uses no clock and no
// randomness: every rank that sees the same shapes decides the same, so that samples of one step
// join across ranks.
//
// With n = `every` (1 unless set) and j = step / n, a step is *sampled* if
//     j < 8,  or j is a power of two,  or j is picked of its P steps,
// and sites are *due* (summaries) at the steps n * j in which j is picked of its Q steps. P and Q
// are powers of two, 1 at first, and only grow. At the end of a step they follow from the largest
// bytes that the sites have shown in one step:
//     Q = the smallest with  summary_bytes / (n * Q) <= 3/4 of the budget,
//     P = the smallest with  sample_bytes / (n * P)  <= the remaining budget, and P >= Q.
// Sizes are those of the shapes, not of the encoding, since they must be equal on every rank. Ranks
// with different shapes also get powers of two, so their samples join at the larger P.
#pragma once

#include <atomic>
#include <cstdint>

namespace plumbline::agent {

// Returns the step that is picked of a block: one of the `stride` (a power of two) steps from block
// * stride on. If the first step of each block were picked, a site that is active only in odd steps
// (a critic, a layer that is dropped every other step) would never be seen. Therefore the low bits
// of the picked step follow from the block's number, by a recurrence of degree three: bit i is the
// sum of bits i+1 and i+3. A step that is picked of 2P steps is also picked of P. Blocks 0, 1, 2,
// 4, 8, ... pick their first step, so that short runs have their second look early. If a site is
// active in one of m steps, m = 2 to 8, any 24 consecutive picks contain an active one (counted for
// strides up to 256).
constexpr uint64_t Picked(uint64_t block, uint64_t stride) {
  if ((block & (block - 1)) == 0) return block * stride;
  uint64_t j = block;
  for (; stride > 1; stride /= 2) j = 2 * j + ((j ^ (j >> 2)) & 1);
  return j;
}

class Cadence {
 public:
  static constexpr int64_t kOpening = 8;  // steps at the start, all of them sampled

  // every >= 1; traffic_bytes >= 1: the budget per step.
  Cadence(uint32_t every, uint64_t traffic_bytes) : every_(every), budget_(traffic_bytes) {}

  // Returns true if the step is sampled. The answer for one step changes only within AtStepEnd of
  // an earlier one. Thread-safe.
  bool SampleDue(int64_t step) const;

  // Return the first step from `step` on, and after `step`, at which sites are due. Thread-safe.
  int64_t FirstDue(int64_t step) const;
  int64_t NextDue(int64_t step) const { return FirstDue(step + 1); }

  // Makes sites due at one of `stretch` (a power of two) of the steps that are due by size: set by
  // the governor. Called by the stepping thread only.
  void Stretch(uint64_t stretch) { stretch_.store(stretch, std::memory_order_relaxed); }
  uint64_t stretch() const { return stretch_.load(std::memory_order_relaxed); }  // any thread

  // Updates P and Q from the sums, over all sites, of the most bytes that each has shown in one
  // step. Called by the stepping thread only.
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
