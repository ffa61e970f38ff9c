// Finds the precision with which the values of a series are printed: the last decimal of any. If a
// log prints a rate with four decimals, it shows 0.0000 long before the rate is 0.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/archive.h"

namespace plumbline::analysis {

class PrintGrain {
 public:
  // Takes a non-zero value, in order.
  void Take(double value) {
    const double size = std::fabs(value);
    if (size == newest_ || !std::isfinite(size)) return;
    before_ = newest_;
    newest_ = size;
    while (decimals_ <= kMost && !IsWhole(size)) ++decimals_;
    // The quotient is the number that a log with `decimals_` decimals is read as.
    const double tens = std::pow(10.0, static_cast<double>(decimals_));
    if (decimals_ <= kMost && std::round(size * tens) / tens != size) ++computed_;
  }

  // Returns true if two values or more lie close to a multiple, as computed numbers do and printed
  // ones do not (1.7500000000000005e-05): they were not rounded.
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

  double newest_ = 0, before_ = 0;  // the newest two different values
  uint32_t decimals_ = 0, computed_ = 0;
};

}  // namespace plumbline::analysis
