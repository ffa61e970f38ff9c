// May an epoch of a data loader have ended at a step?
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace plumbline::analysis {

// `batches`: micro-batches per epoch of the loader. `per_step`: those of a step. A trainer may drop
// the last, partial step of an epoch, make it shorter, or let a step span two epochs. Returns false
// only if `step` is at least `margin` steps from each end of all three. Not finite, or not
// positive: returns true.
inline bool MayEndEpoch(int64_t step, double batches, double per_step, double margin = 4) {
  if (!(batches >= 1) || !(per_step >= 1) || !std::isfinite(batches) || !std::isfinite(per_step))
    return true;
  const double exact = batches / per_step;
  const auto near = [&](double epoch) {
    if (!(epoch > 2 * margin)) return true;
    const double past = std::fmod(static_cast<double>(step), epoch);
    return std::min(past, epoch - past) < margin;
  };
  return near(exact) || near(std::floor(exact)) || near(std::ceil(exact));
}

}  // namespace plumbline::analysis
