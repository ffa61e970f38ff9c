// Computes sums in aligned blocks that differ only in their fraction bits, in parallel. They take
// the same products through the same blocks, so one pass serves several sums.
#pragma once

#include <span>

#include "analysis/product/model.h"
#include "analysis/product/terms.h"

namespace plumbline::analysis {

inline constexpr int kAlignedLanes = 8;  // maximum in one pass

// Returns true if AlignedRun supports the model: aligned, cut towards zero, kept in f32.
bool FitsLanes(const MatmulModel& model);

// Sets sums[i] to the accumulator after products [first, last), starting from `start`, for `model`
// with fraction_bits[i]. The result equals that of one run of MatmulMachine bit for bit. At most
// kAlignedLanes sums; the model must fit. If some partial sum is subnormal or near overflow, or the
// processor has no vectors of four doubles, returns false, and `sums` must not be used.
// Thread-safe.
bool AlignedRun(const MatmulModel& model, const MatmulTerms& terms, int first, int last,
                double start, std::span<const int> fraction_bits, double* sums);

}  // namespace plumbline::analysis
