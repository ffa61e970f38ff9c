// Finds samples that give the same information: equal addends on every rank, up to sign and a power
// of two, with equal results. If a tensor is filled with one value, all its samples are one
// observation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/collective/case/call.h"

namespace plumbline::analysis {

struct DistinctSamples {
  std::vector<int32_t> first;     // one sample of each kind, in the order of `columns`
  std::vector<int32_t> repeated;  // the other samples
};

// Finds distinct samples. Rounding commutes with signs, and with powers of two except for
// subnormals and overflow. In these exceptions too many samples count as repeated, so a proof only
// needs more samples.
DistinctSamples FindDistinct(const ReductionCase& c, std::span<const int32_t> columns);

// Returns the kind of each of the case's samples, numbered from 0 in order of appearance.
std::vector<int32_t> KindsOf(const ReductionCase& c);

}  // namespace plumbline::analysis
