// What a step left in a running sum, and what the next one found there: was it cleared?
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "analysis/accumulation/accumulation_case.h"
#include "base/archive.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules {

// One record of algorithm "left-gradient": `inputs` [m] as the step before left them, `output` [m]
// as the first addend of this one finds them.
struct LeftGradient {
  static constexpr size_t kFewElements = 64;

  enum class Kind {
    kCleared,   // nothing but zeros is found
    kStale,     // every finite element that was not zero has the same bits
    kFew,       // too few elements were not zero
    kChanged,   // neither
    kPoisoned,  // nothing but NaN and infinity was left
    kMalformed
  };
  Kind kind = Kind::kMalformed;
  size_t telling = 0;    // finite elements that were not zero
  size_t same = 0;       // of these, with the same bits now
  double example = 0;    // the first of them
  uint64_t element = 0;  // and where it is, C order
};
LeftGradient LookAtLeft(const v1::ReductionSample& sample);

// Running sums of one rank, where nobody looks at what is left: does each begin with what the one
// before came to? Told by steps in a row that recorded the same elements.
struct CarriedSum {
  uint64_t steps = 0;  // that did
  uint64_t anew = 0;   // that did not
  uint64_t gaps = 0;   // records that miss the step before
  int64_t step_first = 0;
  int64_t step = -1;   // the newest
  size_t telling = 0;  // elements, of the last step that did

  void Take(int64_t of_step, const Accumulation& sum);
  void Persist(Archive& a) { a(steps, anew, gaps, step_first, step, telling, result_); }

 private:
  void Compare(int64_t of_step, const Accumulation& sum);

  std::map<uint64_t, double> result_;  // of the newest step, at some of its elements
};

}  // namespace plumbline::rules
