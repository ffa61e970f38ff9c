// Sums in aligned blocks that differ in their fraction bits alone, computed side by side: they take
// the same products through the same blocks, so one pass serves several of them.
#pragma once

#include <span>

#include "analysis/product/model.h"
#include "analysis/product/terms.h"

namespace plumbline::rules {

inline constexpr int kAlignedLanes = 8;  // at most, in one pass

// Does AlignedRun know models of this kind: aligned and cut towards zero, kept in f32?
bool FitsLanes(const MatmulModel& model);

// sums[i]: the accumulator after products [first, last), `start` before them, of `model` with
// fraction_bits[i]; bit for bit what MatmulMachine's one run gives. At most kAlignedLanes of them;
// the model fits. False, and nothing of `sums` is to be used, where some partial sum is subnormal
// or near overflow, or the processor has no vectors of four doubles. Thread-safe.
bool AlignedRun(const MatmulModel& model, const MatmulTerms& terms, int first, int last,
                double start, std::span<const int> fraction_bits, double* sums);

}  // namespace plumbline::rules
