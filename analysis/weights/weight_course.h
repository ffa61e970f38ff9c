// The updates of one weight, and how many of them had no effect.
#pragma once

#include <cstdint>

#include "analysis/replicas/replicas.h"
#include "base/archive.h"

namespace plumbline::analysis {

// One weight of the run.
struct WeightCourse {
  static constexpr uint64_t kCheckpoints = 3;  // with the same bits, if moments change, which shows
                                               // that the optimizer steps

  Digest digest;
  uint32_t rank = 0;
  uint32_t attempt = 0;
  bool known = false;
  uint64_t still = 0;          // consecutive updates without effect
  uint64_t next_to_other = 0;  // in how many of these another weight changed
  uint64_t updates = 0;        // updates that were judged, with or without effect
  uint64_t unrated = 0;        // gradients in steps without a recorded rate
  uint64_t resting = 0;        // steps with a rate of 0
  uint64_t tiny = 0;           // updates too small for the weight's last place
  uint64_t poisoned = 0;
  bool held = false;  // an update was observed
  bool reported = false;
  Digest moment;  // the optimizer's state, if known
  bool moment_known = false;
  uint64_t by_moment = 0;  // how many of `still` are known from moments
  uint64_t bare = 0;       // consecutive looks without effect and without optimizer state
  uint64_t clamped = 0;    // steps in which all elements had one value
  int64_t still_first = 0;
  int64_t step_first = 0;
  int64_t step_last = 0;
  int64_t poisoned_first = 0;  // valid if poisoned is not 0
  int64_t poisoned_last = 0;
  int64_t judged_last = 0;  // the last update that was judged
  bool HadGradient() const {
    return updates + unrated + resting + tiny + poisoned + clamped > 0 || bare + 1 >= kCheckpoints;
  }
  void Persist(Archive& a) {
    a(digest, rank, attempt, known, still, next_to_other, updates, unrated, resting, tiny,
      poisoned);
    a(held, reported, moment, moment_known, by_moment, bare, clamped);
    a(still_first, step_first, step_last, poisoned_first, poisoned_last, judged_last);
  }
};

}  // namespace plumbline::analysis
