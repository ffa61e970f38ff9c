// Records how often a tensor of one rank was all zero when observed, and whether a row of zeros
// shows that it no longer takes part in the loss. This applies to gradients. Activations and
// weights are judged by the length of the row alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "analysis/weights/zero_step.h"
#include "base/archive.h"

namespace plumbline::analysis {

struct ZeroCourse {
  uint64_t steps = 0;  // observations that count, zero or not
  uint64_t zeros = 0;  // newest consecutive zeros
  uint64_t count = 0;  // elements
  uint64_t poisoned = 0;
  uint64_t resting = 0;     // zero at a rate of 0
  uint64_t at_rest = 0;     // zero with all others, while the loss is at its minimum
  uint64_t by_algebra = 0;  // zero while the gradient of its layer's weight is not
  int64_t zeros_first = 0;
  bool moved = false;  // was non-zero once
  // Before the current row, since the first step in which it was not zero.
  int64_t moved_first = 0;
  uint64_t before = 0;
  uint64_t zero_before = 0;
  // Number of steps of the longest row of zeros that has ended. A row at the beginning counts too.
  int64_t longest = 0;
  // The weight of the gradient: its last state, and when it last changed in a way that decay does
  // not explain.
  int64_t weight_step = -1, used_step = -1;
  double weight_amax = 0, weight_l1 = 0;
  uint64_t weight_digest = 0;

  void Persist(Archive& a) {
    a(steps, zeros, count, poisoned, resting, at_rest, by_algebra, zeros_first, moved, moved_first);
    a(before, zero_before, longest, weight_step, used_step, weight_amax, weight_l1, weight_digest);
  }

  static constexpr uint64_t kSteps = 10;    // consecutive zeros
  static constexpr uint64_t kFewSteps = 6;  // ... if it never was zero in ten observations before
  static constexpr int64_t kSpan = 100;     // steps, if its frequency of use is not known
  // Over all tensors of a run and all observations of one.
  static constexpr double kFalseAlarm = 1e-4;

  void TakeNonZero(int64_t step);
  void TakeZero(int64_t step);
  // Takes the weight that was observed in the same step as the gradient.
  void TakeWeight(int64_t step, const ZeroLook& weight);

  // True if it was zero sometimes, and then non-zero again.
  bool mixed() const { return zero_before > 0; }
  // Returns ln of the probability of a row of `zeros` zeros at its own rate: beta-binomial with
  // Jeffreys' prior.
  double LogChanceOfRow() const;
  // Returns the expected rate of zeros: (z + 1/2) / (n + 1), including the row.
  double rate() const {
    return (static_cast<double>(zero_before + zeros) + 0.5) /
           (static_cast<double>(before + zeros) + 1);
  }
  // Returns true if its past does not explain the row. `tensors` is the run's number. `switched` is
  // the step in which another tensor began to be used during the row (-1 if none), as when two
  // parts of a model alternate.
  bool Stopped(int64_t step, uint64_t tensors, int64_t switched) const;
  // Returns true if it was non-zero in fewer than ten steps, or never, and is not used between the
  // observed steps either. `worst` is the highest rate() of the run's mixed tensors, or 0 if there
  // are none.
  bool NeverUsed(int64_t step, uint64_t tensors, double worst) const;

 private:
  double LogFalseAlarm(uint64_t tensors) const;
};

// One tensor, per rank.
struct ZeroSite {
  std::map<uint32_t, ZeroCourse> ranks;
  std::string role;  // of the tensor
  int64_t step_first = 0;
  int64_t step_last = 0;
  bool reported = false;
  void Persist(Archive& a) { a(ranks, role, step_first, step_last, reported); }
};

}  // namespace plumbline::analysis
