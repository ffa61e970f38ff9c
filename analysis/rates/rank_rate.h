// One rank's rate, and its consecutive zeros.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/archive.h"

namespace plumbline::analysis {

// Finds the precision with which the values of a series are printed: the last decimal of any. If a
// log prints a rate with four decimals, it shows 0.0000 long before the rate is 0. A value such as
// 0.00018400000000000003 was not rounded, although it is a multiple of 10^-6 within its own error.
class PrintGrain {
 public:
  // Takes a non-zero value, in order.
  void Take(double value) {
    const double size = std::fabs(value);
    if (size == newest_ || !std::isfinite(size)) return;
    before_ = newest_;
    newest_ = size;
    while (decimals_ <= kMost && !IsWhole(size)) ++decimals_;
    computed_ += decimals_ <= kMost && !IsShort(size) ? 1 : 0;
  }

  // Returns true if two values or more lie next to a multiple, as computed numbers do and printed
  // ones do not: they were not rounded.
  bool unrounded() const { return computed_ >= 2; }
  // Returns 10^-k if all values so far are multiples of it with k of few digits; else 0.
  double grain() const { return newest_ > 0 && decimals_ <= kMost ? Unit() : 0; }
  // Returns true if a 0 after the newest value may be rounded. A schedule's value falls by steps
  // that grow slowly. So the next step is at most the last one plus a unit (both ends are rounded),
  // and half a unit more is rounded off. If it did not move before, it was within a unit.
  bool MayHideZero() const {
    if (grain() == 0) return false;
    const double step = before_ > newest_ ? before_ - newest_ : 0;
    return newest_ <= step + 2 * Unit() * (1 + 1e-9);
  }

  void Persist(Archive& a) { a(newest_, before_, decimals_, computed_); }

 private:
  static constexpr uint32_t kMost = 12;
  double Unit() const { return std::pow(10.0, -static_cast<double>(decimals_)); }
  bool IsWhole(double size) const {
    const double units = size * std::pow(10.0, static_cast<double>(decimals_));
    return std::round(units) >= 1 && std::fabs(units - std::round(units)) <= 1e-9 * units;
  }

  // Returns true if the value is the double that is nearest to a decimal with `decimals_` places.
  bool IsShort(double size) const {
    const double scale = std::pow(10.0, static_cast<double>(decimals_));
    return std::round(size * scale) / scale == size;
  }

  double newest_ = 0, before_ = 0;  // the newest two different values
  uint32_t decimals_ = 0, computed_ = 0;
};

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
