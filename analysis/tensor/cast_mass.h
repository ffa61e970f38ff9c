// Measures what a cast to a narrower format loses: the values that become zero and those above its
// largest value, by number and by mass.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace plumbline::analysis {

struct CastMass {
  uint64_t values = 0;  // finite and not zero
  uint64_t flushed = 0, overflowed = 0;
  double mass = 0;  // sum |x|
  double flushed_mass = 0, overflowed_mass = 0;
  double amax = 0;

  void Take(double x, DType target);
  void Take(std::span<const double> values, DType target);
  double lost() const { return flushed_mass + overflowed_mass; }
  // Share of the mass that is lost. If there is no mass, it is 0.
  double lost_share() const { return mass > 0 ? lost() / mass : 0; }
};

}  // namespace plumbline::analysis
