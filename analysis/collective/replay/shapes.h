// The orders of summation to try: rings, trees, pairs of trees, over ranks or groups of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/orders.h"
#include "analysis/collective/replay/segments.h"
#include "analysis/collective/replay/trees.h"
#include "base/archive.h"

namespace plumbline::analysis {

// The order of a candidate's sums. In a ring, the sum of segment g begins at position (step * g +
// shift) mod rows of its order and continues in `direction`. If there is no map, it begins at
// `shift` for all segments.
struct SumShape {
  enum class Kind : uint8_t { kRing, kChannelRing, kTree, kTreePair, kExact };
  Kind kind = Kind::kRing;
  int8_t direction = 1;
  int8_t step = 1;
  int16_t map = -1;   // index in SumShapes::maps; -1 if there is one start for all
  int32_t order = 0;  // index in SumShapes::orders; for a tree: its number
  int32_t shift = 0;
  void Persist(Archive& a) { a(kind, direction, step, map, order, shift); }
};

// The orders to try, for all arithmetics with the same number of rows.
struct SumShapes {
  int rows = 0;
  std::vector<RingOrder> orders;
  // `orders` is AllRingOrders(rows), in which each direction is a separate order.
  bool all_orders = false;
  std::vector<RingOrder> channel_orders;  // one order per channel, from metadata
  std::vector<SegmentMap> maps;
  std::vector<NamedTree> trees;
  // Each half of the buffer uses one tree of a pair; only with `halves`.
  std::vector<TreePair> pairs;
  std::vector<int8_t> second_half;  // [m]: 0 first, 1 second, 2 within 2 rows of the middle

  uint64_t candidates() const;  // Returns the number of rings and trees, without the exact sum.
};
SumShapes MakeShapes(const ReductionCase& c, int rows, bool search_orders);

}  // namespace plumbline::analysis
