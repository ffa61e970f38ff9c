// Every order of summation under one arithmetic against what a collective gave: which candidates
// explain all samples, and how far the others are off.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rules/lib/reduction_arithmetic.h"
#include "rules/lib/reduction_case.h"
#include "rules/lib/reduction_orders.h"
#include "rules/lib/reduction_segments.h"
#include "rules/lib/reduction_trees.h"

namespace plumbline::rules {

// The order of a candidate's sums. Rings: the sum of segment g begins at position
// (step * g + shift) mod rows of its order and goes on in `direction`; without a map it begins at
// `shift` everywhere.
struct SumShape {
  enum class Kind : uint8_t { kRing, kChannelRing, kTree, kTreePair, kExact };
  Kind kind = Kind::kRing;
  int8_t direction = 1;
  int8_t step = 1;
  int16_t map = -1;   // of SumShapes::maps; -1: one start for all
  int32_t order = 0;  // of SumShapes::orders; of a tree: its number
  int32_t shift = 0;
};

// What is tried, shared by the arithmetics with the same number of rows.
struct SumShapes {
  int rows = 0;
  std::vector<RingOrder> orders;
  bool all_orders = false;  // orders is AllRingOrders(rows); directions are orders of their own
  std::vector<RingOrder> channel_orders;  // an order for each channel, from metadata
  std::vector<SegmentMap> maps;
  std::vector<NamedTree> trees;
  std::vector<TreePair> pairs;      // halves of the buffer take one each; only with `halves`
  std::vector<int8_t> second_half;  // [m]: 0 first, 1 second, 2 within 2 rows of the middle

  uint64_t candidates() const;  // rings and trees, without the exact sum
};
SumShapes MakeShapes(const ReductionCase& c, int rows, bool search_orders);

// One candidate and how it did.
struct Tally {
  int arithmetic = 0;  // number, the caller's
  SumShape shape;
  int32_t tested = 0;
  int32_t missed = 0;
};

struct SearchResult {
  std::vector<Tally> accepted;  // miss no sample
  std::vector<Tally> near;      // tested on all samples, missed fewer than `enough`
  std::vector<Tally> best;      // given up: the best ring, tree, halving and exact sum by their
                                // share of samples explained so far
};

// Tries the shapes on the columns, giving a candidate up when it has missed `enough` of them.
SearchResult SearchArithmetic(const ReductionCase& c, const Arithmetic& a, int arithmetic,
                              const SumShapes& shapes, std::span<const int32_t> columns,
                              int enough);

// How many of the columns one candidate explains.
int32_t CountMatches(const ReductionCase& c, const Arithmetic& a, const SumShapes& shapes,
                     const SumShape& shape, std::span<const int32_t> columns);

}  // namespace plumbline::rules
