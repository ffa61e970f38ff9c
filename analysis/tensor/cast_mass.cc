#include "analysis/tensor/cast_mass.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace plumbline::analysis {

void CastMass::Take(double x, DType target) {
  const double size = std::fabs(x);
  if (!std::isfinite(x) || size == 0) return;
  ++values;
  mass += size;
  amax = std::max(amax, size);
  const double stored = RoundToFormat(x, target);
  if (stored == 0) {
    ++flushed;
    flushed_mass += size;
  } else if (!std::isfinite(stored)) {
    ++overflowed;
    overflowed_mass += size;
  }
}

void CastMass::Take(std::span<const double> all, DType target) {
  for (const double x : all) Take(x, target);
}

}  // namespace plumbline::analysis
