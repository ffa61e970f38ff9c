// How often a tensor of one rank was all zero where it was looked at, and whether a row of zeros
// says that it has no part in the loss any more. Of gradients: activations and weights are judged
// by the length of the row alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "analysis/weights/zero_step.h"
#include "base/archive.h"

namespace plumbline::rules {

struct ZeroCourse {
  uint64_t steps = 0;  // that counted, zero or not
  uint64_t zeros = 0;  // in a row, to the newest
  uint64_t count = 0;  // elements
  uint64_t poisoned = 0;
  uint64_t resting = 0;     // zero at a rate of 0
  uint64_t at_rest = 0;     // zero with all others, the loss at its least
  uint64_t by_algebra = 0;  // zero beside its layer's weight, whose gradient is not
  int64_t zeros_first = 0;
  bool moved = false;  // was not zero once
  // Before the present row, from the first step on in which it was not zero.
  int64_t moved_first = 0;
  uint64_t before = 0;
  uint64_t zero_before = 0;
  int64_t longest = 0;  // steps of the longest row of zeros that ended, one at the beginning too
  // The weight beside it: as it was last, and when it last moved as no decay moves it.
  int64_t weight_step = -1, used_step = -1;
  double weight_amax = 0, weight_l1 = 0;
  uint64_t weight_digest = 0;

  void Persist(Archive& a) {
    a(steps, zeros, count, poisoned, resting, at_rest, by_algebra, zeros_first, moved, moved_first);
    a(before, zero_before, longest, weight_step, used_step, weight_amax, weight_l1, weight_digest);
  }

  static constexpr uint64_t kSteps = 10;    // zeros in a row
  static constexpr uint64_t kFewSteps = 6;  // where it never was zero in ten before
  static constexpr int64_t kSpan = 100;     // steps, where nothing is known of how often it is used
  static constexpr double kFalseAlarm = 1e-4;  // over all tensors of a run and all looks at one

  void TakeNonZero(int64_t step);
  void TakeZero(int64_t step);
  // That was observed beside the gradient, in the same step.
  void TakeWeight(int64_t step, const ZeroLook& weight);

  // Zero now and then, and not zero again.
  bool mixed() const { return zero_before > 0; }
  // ln of the chance of a row of `zeros` zeros under its own rate: beta-binomial of Jeffreys'
  // prior.
  double LogChanceOfRow() const;
  // The rate at which it is zero, as it is to be expected: (z + 1/2) / (n + 1), with the row.
  double rate() const {
    return (static_cast<double>(zero_before + zeros) + 0.5) /
           (static_cast<double>(before + zeros) + 1);
  }
  // The row is none that its past explains. `tensors`: of the run; `switched`: another tensor began
  // to be used during the row (-1: none did), as where two parts of a model take turns.
  bool Stopped(int64_t step, uint64_t tensors, int64_t switched) const;
  // It was not zero in fewer than ten steps, or never, and neither is it used between those that
  // are looked at. `worst`: the highest rate() of the run's mixed tensors, 0 where there are none.
  bool NeverUsed(int64_t step, uint64_t tensors, double worst) const;

 private:
  double LogFalseAlarm(uint64_t tensors) const;
};

// One tensor's, rank by rank.
struct ZeroSite {
  std::map<uint32_t, ZeroCourse> ranks;
  std::string role;  // of the tensor
  int64_t step_first = 0;
  int64_t step_last = 0;
  bool told = false;
  void Persist(Archive& a) { a(ranks, role, step_first, step_last, told); }
};

}  // namespace plumbline::rules
