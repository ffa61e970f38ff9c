// One rank's rate, and its consecutive zeros.
#pragma once

#include <cmath>
#include <cstdint>

#include "analysis/rates/print_grain.h"
#include "base/archive.h"

namespace plumbline::analysis {

constexpr uint64_t kZeroRateSteps = 10;  // consecutive steps that are a finding
constexpr uint64_t kZeroRateReturns =
    100;  // for a rate that was non-zero before, in a run that continues

struct RankRate {
  uint32_t attempt = 0;
  uint64_t points = 0;
  uint64_t zeros = 0;  // newest consecutive zeros
  int64_t zeros_first = 0;
  int64_t zeros_last = 0;
  double before = NAN;  // the last non-zero rate; NaN if there was none
  // Reported by the training process, so it is exact. A file's values were printed, possibly with
  // few digits.
  bool exact = false;
  // A zero came with a sign: a log printed it with an exponent ("0.00e+00"), so that it is not
  // rounded.
  bool unrounded = false;
  PrintGrain grain;
  void Persist(Archive& a) {
    a(attempt, points, zeros, zeros_first, zeros_last, before, exact, unrounded, grain);
  }

  // How its values came.
  void Came(bool as_exact, bool as_unrounded) {
    exact |= as_exact;
    unrounded |= as_unrounded;
  }

  // `largest` is that of its groups, in magnitude. Several rows of one step are one point.
  void Take(uint32_t of_attempt, int64_t step, double largest) {
    if (attempt != of_attempt) {
      zeros = 0;
      before = NAN;
    }
    attempt = of_attempt;
    ++points;
    if (largest != 0) {
      zeros = 0;
      before = largest;
      grain.Take(largest);
      return;
    }
    if (zeros > 0 && step == zeros_last) return;
    if (zeros++ == 0) zeros_first = step;
    zeros_last = step;
  }
  // True if the zeros may be a rate that is too small for the printed digits.
  bool may_be_printed() const {
    const bool rounded = !unrounded && !grain.unrounded();
    return !exact && (std::isnan(before) || (rounded && grain.MayHideZero()));
  }
};

}  // namespace plumbline::analysis
