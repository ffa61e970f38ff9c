// How finely the values of a series are written: the last decimal that any of them has. A rate that
// a log prints with four decimals reads 0.0000 long before it is 0.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/archive.h"

namespace plumbline::rules {

class PrintGrain {
 public:
  // A value that is not 0, in order.
  void Take(double value) {
    const double size = std::fabs(value);
    if (size == newest_ || !std::isfinite(size)) return;
    before_ = newest_;
    newest_ = size;
    while (decimals_ <= kMost && !IsWhole(size)) ++decimals_;
  }

  // All values so far are multiples of 10^-k, with k of few digits: 10^-k; else 0.
  double grain() const { return newest_ > 0 && decimals_ <= kMost ? Unit() : 0; }
  // Whether a 0 behind the newest value may be a rounded one. A schedule's value goes down by steps
  // that grow little: the next one is at most the last one and a unit (both ends are rounded), and
  // half a unit more is rounded off. Where it did not move before, it stood within a unit.
  bool MayHideZero() const {
    if (grain() == 0) return false;
    const double step = before_ > newest_ ? before_ - newest_ : 0;
    return newest_ <= step + 2 * Unit() * (1 + 1e-9);
  }

  void Persist(Archive& a) { a(newest_, before_, decimals_); }

 private:
  static constexpr uint32_t kMost = 12;
  double Unit() const { return std::pow(10.0, -static_cast<double>(decimals_)); }
  bool IsWhole(double size) const {
    const double units = size * std::pow(10.0, static_cast<double>(decimals_));
    return std::round(units) >= 1 && std::fabs(units - std::round(units)) <= 1e-9 * units;
  }

  double newest_ = 0, before_ = 0;  // differing ones
  uint32_t decimals_ = 0;
};

}  // namespace plumbline::rules
