// Which arithmetics a call of a collective may have used, and what a candidate is called.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/collective/replay/search.h"

namespace plumbline::rules {

// Every arithmetic of the call: wire dtype, rounding, averaging, flush, groups, partial dtype.
// `columns`: the samples that are judged. Where every output fits a narrower dtype than the wire's,
// that one is a candidate too.
std::vector<Arithmetic> CandidateArithmetics(const ReductionCase& c,
                                             std::span<const int32_t> columns);

// "ring", "halving", "tree", "grouped", "fp32", "premultiplied" or "exact".
std::string FamilyOf(const Arithmetic& a, const SumShape& shape, const SumShapes& shapes,
                     int ranks);
// Families that differ in too little to be each other's rivals: one wide sum, rounded once.
std::string KinOf(const std::string& family);

// What a candidate says of itself, by key: dtype, rounding, averaging, flush, start, direction,
// ring_order, segments, group, variant. Equal values of two candidates are one claim.
using Parameters = std::map<std::string, std::string>;
Parameters ParametersOf(const Arithmetic& a, const SumShape& shape, const SumShapes& shapes);

// A hash of the sum that a candidate takes at one sample: equal for equal expressions (sums
// commute), whatever they are called.
uint64_t ExpressionAt(const Arithmetic& a, const SumShape& shape, const SumShapes& shapes,
                      int sample);

// The largest finite value the dtype can hold; subnormals of it may occur in sums of the columns.
bool MayMeetSubnormals(const ReductionCase& c, DType dtype, std::span<const int32_t> columns);

}  // namespace plumbline::rules
