// Samples that say the same: equal addends on every rank, up to sign and a power of two, with equal
// results. A tensor filled with one value gives as many of them as are drawn, and one observation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/collective/case/call.h"

namespace plumbline::rules {

struct DistinctSamples {
  std::vector<int32_t> first;     // one of each kind, in the order of `columns`
  std::vector<int32_t> repeated;  // the rest
};

// Rounding commutes with signs and, away from subnormals and overflow, with powers of two. Where it
// does not, too many samples are taken for repeated: a proof then needs more of them.
DistinctSamples FindDistinct(const ReductionCase& c, std::span<const int32_t> columns);

// The kind of each of the case's samples, numbered from 0 in the order in which they come.
std::vector<int32_t> KindsOf(const ReductionCase& c);

}  // namespace plumbline::rules
