// Tests every order of summation with one arithmetic against a collective's results. Finds the
// candidates that explain all samples, and the number of samples that other candidates do not
// explain.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/arithmetic.h"
#include "analysis/collective/replay/shapes.h"

namespace plumbline::analysis {

// One candidate and its result.
struct MatchCounts {
  int arithmetic = 0;  // number that the caller gave to the arithmetic
  SumShape shape;
  int32_t tested = 0;
  int32_t missed = 0;
};

struct SearchResult {
  std::vector<MatchCounts> accepted;  // candidates that explain every sample
  // Candidates that failed on fewer than `enough` of all samples.
  std::vector<MatchCounts> near;
  // Abandoned candidates: the ring, tree, halving and exact sum with the largest share of explained
  // samples.
  std::vector<MatchCounts> best;
};

// Tests the shapes on the columns. Abandons a candidate that has failed on `enough` columns.
SearchResult SearchArithmetic(const ReductionCase& c, const Arithmetic& a, int arithmetic,
                              const SumShapes& shapes, std::span<const int32_t> columns,
                              int enough);

// Tests further samples for candidates of one arithmetic: adds to tested and missed.
void TestFurther(const ReductionCase& c, const Arithmetic& a, const SumShapes& shapes,
                 std::span<const int32_t> columns, std::vector<MatchCounts>& tallies);

// Returns the number of columns that one candidate explains.
int32_t CountMatches(const ReductionCase& c, const Arithmetic& a, const SumShapes& shapes,
                     const SumShape& shape, std::span<const int32_t> columns);

}  // namespace plumbline::analysis
