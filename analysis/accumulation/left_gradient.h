// Compares what a step left in a running sum with what the next one found there, to test whether it
// was cleared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "analysis/accumulation/accumulation_case.h"
#include "base/archive.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// Reads one record of algorithm "left-gradient": `inputs` [m] as the previous step left them,
// `output` [m] as the first addend of this step finds them.
struct LeftGradient {
  static constexpr size_t kFewElements = 64;

  enum class Kind {
    kCleared,   // only zeros are found
    kStale,     // every finite non-zero element has the same bits
    kFew,       // too few elements were non-zero
    kChanged,   // neither
    kPoisoned,  // only NaN and infinity were left
    kMalformed
  };
  Kind kind = Kind::kMalformed;
  size_t non_zero = 0;   // finite non-zero elements
  size_t same = 0;       // of these: those with the same bits now
  double example = 0;    // the first of them
  uint64_t element = 0;  // and its place, C order
};
LeftGradient LookAtLeft(const v1::ReductionSample& sample);

// For running sums of one rank without observed leftovers: tests whether each begins with the
// result of the previous one. Uses consecutive steps that recorded the same elements.
struct CarriedSum {
  uint64_t steps = 0;  // steps that did
  uint64_t anew = 0;   // steps that did not
  uint64_t gaps = 0;   // records without the previous step
  int64_t step_first = 0;
  int64_t step = -1;    // the newest
  size_t non_zero = 0;  // elements in the last step that did

  void Take(int64_t of_step, const Accumulation& sum);
  void Persist(Archive& a) { a(steps, anew, gaps, step_first, step, non_zero, result_); }

 private:
  void Compare(int64_t of_step, const Accumulation& sum);

  std::map<uint64_t, double> result_;  // of the newest step, at some of its elements
};

}  // namespace plumbline::analysis
