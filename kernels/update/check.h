// Checks whether an in-place update arrived: `after` should be round(before + intended), rounded
// once to nearest even in the dtype of `before`. Counts and weighs the losses of a low-precision
// weight.
#pragma once

#include <cstdint>

#include "base/tensor_view.h"
#include "kernels/core/status_declared.h"

namespace plumbline {

// Sums are carried in pairs of doubles over fixed blocks of 4,096 elements and exactly between
// blocks: the same bits for any number of threads, any launch shape, host and device. Their error
// is at most 0.5 ulp + 2^-90 * sum of |addends|.
struct UpdateStats {
  uint64_t count = 0;
  uint64_t non_finite =
      0;  // a NaN or infinity in before, after or intended; excluded from all figures below
  uint64_t intended = 0;       // intended != 0
  uint64_t lost = 0;           // of these, `after` has the bits of `before`
  uint64_t moved_against = 0;  // of these, (after - before) * intended < 0
  double intended_l1 = 0;      // sum |intended|
  double applied_l1 = 0;       // sum |after - before| over the intended
  double lost_l1 = 0;          // sum |intended| over the lost
  double applied_along = 0;    // sum (after - before) * sign(intended)
  // Sum of (after - r) / ulp(s) * sign(s) with s = before + intended exactly, r = s rounded once,
  // ulp in the dtype of `before`. If r is beyond the largest finite value, the element is not in
  // this sum and counts only as misrounded.
  double error_sum = 0;
  uint64_t misrounded = 0;  // after != r, of all finite elements; the zeros are equal
};

// Checks host tensors of one shape, of any strides and alignment; `before` and `after` of one
// floating dtype, `intended` of any floating dtype. Returns InvalidArgument with the tensor that
// does not fit. `threads` never changes the result. Thread-safe.
absl::Status CheckUpdate(const TensorView& before, const TensorView& after,
                         const TensorView& intended, UpdateStats* stats, int threads = 1);

}  // namespace plumbline
