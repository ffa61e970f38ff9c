// Every order of summation under one arithmetic against what a collective gave: which candidates
// explain all samples, and how far the others are off.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/arithmetic.h"
#include "analysis/collective/replay/shapes.h"

namespace plumbline::rules {

// One candidate and how it did.
struct MatchCounts {
  int arithmetic = 0;  // number, the caller's
  SumShape shape;
  int32_t tested = 0;
  int32_t missed = 0;
};

struct SearchResult {
  std::vector<MatchCounts> accepted;  // miss no sample
  std::vector<MatchCounts> near;      // tested on all samples, missed fewer than `enough`
  std::vector<MatchCounts> best;  // given up: the best ring, tree, halving and exact sum by their
                                  // share of samples explained so far
};

// Tries the shapes on the columns, giving a candidate up when it has missed `enough` of them.
SearchResult SearchArithmetic(const ReductionCase& c, const Arithmetic& a, int arithmetic,
                              const SumShapes& shapes, std::span<const int32_t> columns,
                              int enough);

// Further samples for candidates of one arithmetic that were tested before: adds to tested and
// missed.
void TestFurther(const ReductionCase& c, const Arithmetic& a, const SumShapes& shapes,
                 std::span<const int32_t> columns, std::vector<MatchCounts>& tallies);

// How many of the columns one candidate explains.
int32_t CountMatches(const ReductionCase& c, const Arithmetic& a, const SumShapes& shapes,
                     const SumShape& shape, std::span<const int32_t> columns);

}  // namespace plumbline::rules
