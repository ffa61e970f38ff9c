#include "analysis/collective/replay/shapes.h"

#include <algorithm>
#include <numeric>

namespace plumbline::analysis {
namespace {

void AddHalves(const ReductionCase& c, SumShapes& shapes) {
  if (c.count == 0) return;
  shapes.pairs = DoubleBinaryTrees(shapes.rows);
  const uint64_t middle = (c.count + 1) / 2;
  const auto near = 2 * static_cast<uint64_t>(shapes.rows);
  for (const uint64_t offset : c.offsets) {
    const uint64_t away = offset < middle ? middle - offset : offset - middle;
    shapes.second_half.push_back(static_cast<int8_t>(away <= near ? 2 : offset >= middle));
  }
}

RingOrder Natural(int rows) {
  RingOrder order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Adds the orders in the metadata: one order, or one per channel.
void AddDeclaredOrders(const ReductionCase& c, SumShapes& shapes) {
  const auto rows = static_cast<size_t>(shapes.rows);
  for (size_t at = 0; at + rows <= c.ring_order.size(); at += rows) {
    RingOrder order(c.ring_order.begin() + static_cast<std::ptrdiff_t>(at),
                    c.ring_order.begin() + static_cast<std::ptrdiff_t>(at + rows));
    if (c.ring_order.size() > rows) shapes.channel_orders.push_back(order);
    if (std::find(shapes.orders.begin(), shapes.orders.end(), order) == shapes.orders.end() &&
        shapes.orders.size() < 2)
      shapes.orders.push_back(std::move(order));
  }
}

}  // namespace

uint64_t SumShapes::candidates() const {
  const uint64_t directions = all_orders ? 1 : 2;
  const auto r = static_cast<uint64_t>(rows);
  uint64_t each = directions * r * (1 + 2 * maps.size());
  uint64_t channel_rings = 0;
  for (const SegmentMap& map : maps) {
    if (!channel_orders.empty() && !map.channel.empty()) channel_rings += 4 * r;
  }
  return each * orders.size() + channel_rings + trees.size() + 2 * pairs.size();
}

SumShapes MakeShapes(const ReductionCase& c, int rows, bool search_orders) {
  SumShapes shapes;
  shapes.rows = rows;
  shapes.maps = CandidateMaps(c, rows);
  shapes.trees = CandidateTrees(rows);
  AddHalves(c, shapes);
  const bool whole = rows == c.ranks;
  if (search_orders && whole && c.ring_order.empty() && rows <= kMostSearchedRows) {
    shapes.orders = AllRingOrders(rows);
    shapes.all_orders = true;
    return shapes;
  }
  if (rows > kMostRingRows) return shapes;
  shapes.orders.push_back(Natural(rows));
  if (whole) AddDeclaredOrders(c, shapes);
  return shapes;
}

}  // namespace plumbline::analysis
