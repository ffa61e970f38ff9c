// Orders of summation that are tried: rings, trees, pairs of trees, over ranks or groups of them.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/orders.h"
#include "analysis/collective/replay/segments.h"
#include "analysis/collective/replay/trees.h"
#include "base/archive.h"

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
  void Persist(Archive& a) { a(kind, direction, step, map, order, shift); }
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

}  // namespace plumbline::rules
