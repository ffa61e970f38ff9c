// Lists the arithmetics that a call of a collective may have used, and names the candidates.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/collective/replay/search.h"

namespace plumbline::analysis {

// Returns every arithmetic of the call: wire dtype, rounding, averaging, flush, groups, partial
// dtype. `columns` are the judged samples. If every output fits in a narrower dtype than the
// wire's, that dtype is also a candidate.
std::vector<Arithmetic> CandidateArithmetics(const ReductionCase& c,
                                             std::span<const int32_t> columns);

// Returns "ring", "halving", "tree", "grouped", "fp32", "premultiplied" or "exact".
std::string FamilyOf(const Arithmetic& a, const SumShape& shape, const SumShapes& shapes,
                     int ranks);
// Returns the common name of families that differ too little to be rivals, such as one wide sum,
// rounded once.
std::string KinOf(const std::string& family);

// Returns a candidate's parameters by key: dtype, rounding, averaging, flush, start, direction,
// ring_order, segments, group, variant. Candidates with equal values are one claim.
using Parameters = std::map<std::string, std::string>;
Parameters ParametersOf(const Arithmetic& a, const SumShape& shape, const SumShapes& shapes);

// Returns a hash of the sum that a candidate computes at one sample. Equal expressions have equal
// hashes, also under different names. Sums commute.
uint64_t ExpressionAt(const Arithmetic& a, const SumShape& shape, const SumShapes& shapes,
                      int sample);

// Returns true if sums of the columns may contain subnormals of the dtype.
bool MayMeetSubnormals(const ReductionCase& c, DType dtype, std::span<const int32_t> columns);

}  // namespace plumbline::analysis
