// The arithmetics that a call of a collective may have used, and the names of the candidates.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/collective/replay/search.h"

namespace plumbline::analysis {

// Returns every arithmetic of the call: wire dtype, rounding, averaging, flush, groups, partial
// dtype. `columns` are the judged samples. If every output fits a narrower dtype than the wire's,
// that dtype is a candidate too.
std::vector<Arithmetic> CandidateArithmetics(const ReductionCase& c,
                                             std::span<const int32_t> columns);

// Returns "ring", "halving", "tree", "grouped", "fp32", "premultiplied" or "exact".
std::string FamilyOf(const Arithmetic& a, const SumShape& shape, const SumShapes& shapes,
                     int ranks);
// Returns the name shared by families that differ too little to be rivals: one wide sum, rounded
// once.
std::string KinOf(const std::string& family);

// Returns a candidate's parameters by key: dtype, rounding, averaging, flush, start, direction,
// ring_order, segments, group, variant. If two candidates have equal values, they make one claim.
using Parameters = std::map<std::string, std::string>;
Parameters ParametersOf(const Arithmetic& a, const SumShape& shape, const SumShapes& shapes);

// Returns a hash of the sum that a candidate computes at one sample. Equal expressions have equal
// hashes (sums commute), whatever their names.
uint64_t ExpressionAt(const Arithmetic& a, const SumShape& shape, const SumShapes& shapes,
                      int sample);

// Returns true if subnormals of the dtype may occur in sums of the columns.
bool MayMeetSubnormals(const ReductionCase& c, DType dtype, std::span<const int32_t> columns);

}  // namespace plumbline::analysis
