// Which steps are measured and which also keep raw rows. No clock and no randomness: every rank
// that sees the same shapes decides the same, so that samples of one step join across ranks.
//
// With n = `every` (1 unless set), j = step / n and d = Scattered(j), a step is *sampled* when
//     j < 8,  or d is a power of two,  or d is a multiple of P,
// and sites are *due* (summaries) at the steps n * j whose d is a multiple of Q. P and Q are powers
// of two, 1 at first, and only rise: at the end of a step, from the largest bytes that the sites
// have shown in one step,
//     Q = the smallest with  summary_bytes / (n * Q) <= 3/4 of the budget,
//     P = the smallest with  sample_bytes / (n * P)  <= what the budget leaves then, and P >= Q.
// Sizes are those of the shapes not of what was encoded, for they must be
// equal on every rank. Ranks whose shapes differ get powers of two too: they join at the larger P.
#pragma once

#include <atomic>
#include <cstdint>

namespace plumbline::agent {

// A step's place in the order of being picked. With j itself, multiples of P would meet a site that
// lives in odd steps alone (a critic, a layer dropped every other step) never or always. This is a
// one-to-one map within each block of 2^k steps that begins at a multiple of 2^k, so that of each
// block of P steps one is picked, those of 2P are among those of P, and 0 is always one. Bit i of d
// is zero when j's bit i is the sum of its bits i+1 and i+3: a recurrence of degree three, so that
// any 8 picks that begin at a multiple of 8 lie at all residues modulo 2, 4 and 8; for periods of
// 3, 5, 6 and 7 steps 22 picks were enough for every P up to 256 (counted).
constexpr uint64_t Scattered(uint64_t j) { return j ^ (j >> 1) ^ (j >> 3); }

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
