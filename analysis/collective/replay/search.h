// Tests every order of summation under one arithmetic against a collective's results: which
// candidates explain all samples, and how many samples the others miss.
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
  int arithmetic = 0;  // number given by the caller
  SumShape shape;
  int32_t tested = 0;
  int32_t missed = 0;
};

struct SearchResult {
  std::vector<MatchCounts> accepted;  // miss no sample
  std::vector<MatchCounts> near;      // tested on all samples, missed fewer than `enough`
  std::vector<MatchCounts> best;  // abandoned: the best ring, tree, halving and exact sum by their
                                  // share of explained samples
};

// Tries the shapes on the columns. Abandons a candidate that has missed `enough` of them.
SearchResult SearchArithmetic(const ReductionCase& c, const Arithmetic& a, int arithmetic,
                              const SumShapes& shapes, std::span<const int32_t> columns,
                              int enough);

// Tests further samples for candidates of one arithmetic: adds to tested and missed.
void TestFurther(const ReductionCase& c, const Arithmetic& a, const SumShapes& shapes,
                 std::span<const int32_t> columns, std::vector<MatchCounts>& tallies);

// Returns how many of the columns one candidate explains.
int32_t CountMatches(const ReductionCase& c, const Arithmetic& a, const SumShapes& shapes,
                     const SumShape& shape, std::span<const int32_t> columns);

}  // namespace plumbline::analysis
