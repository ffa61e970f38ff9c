#include "analysis/collective/replay/candidates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plumbline::analysis {
namespace {

using Kind = SumShape::Kind;

bool PowerOfTwoRanks(int ranks) { return std::has_single_bit(static_cast<unsigned>(ranks)); }

// If the factor is exact, all ways to divide before the sum are equal, and all ways to divide after
// it.
std::vector<Averaging> Averagings(const ReductionCase& c, DType wire) {
  if (!c.average()) return {Averaging::kNone};
  if (PowerOfTwoRanks(c.ranks)) return {Averaging::kPreDivided, Averaging::kPostDivided};
  std::vector<Averaging> all = {Averaging::kPreDivided, Averaging::kPreMultiplied,
                                Averaging::kPostDivided, Averaging::kPostMultiplied};
  if (FormatOf(wire).precision < 24) {
    all.push_back(Averaging::kPreReciprocal);
    all.push_back(Averaging::kPostReciprocal);
  }
  return all;
}

// Returns true if each finite sampled output is a value of `dtype`, so that a wire of that type is
// possible.
bool OutputsFit(const ReductionCase& c, DType dtype, std::span<const int32_t> columns) {
  return std::all_of(columns.begin(), columns.end(), [&](int32_t column) {
    const double y = c.output[static_cast<size_t>(column)];
    return !std::isfinite(y) || RoundToFormat(y, dtype) == y;
  });
}

// Returns the declared wire type, and the 16-bit types to which f32 inputs may have been cast.
std::vector<DType> Wires(const ReductionCase& c, std::span<const int32_t> columns) {
  std::vector<DType> wires = {c.wire_dtype};
  if (FormatOf(c.wire_dtype).precision < 24) return wires;
  for (const DType narrow : {DType::kBF16, DType::kF16}) {
    if (OutputsFit(c, narrow, columns)) wires.push_back(narrow);
  }
  return wires;
}

// Lists the arithmetics to try: wire types x flushes of subnormals x ways to average, each summed
// hop by hop, by groups of ranks, and in a wide accumulator.
class ArithmeticList {
 public:
  ArithmeticList(const ReductionCase& c, std::span<const int32_t> columns)
      : c_(c), columns_(columns) {}

  std::vector<Arithmetic> Make() {
    for (const DType wire : Wires(c_, columns_)) {
      Arithmetic base;
      base.wire = wire;
      base.store = c_.output_dtype;
      std::vector<Flush> flushes = {Flush::kNone};
      if (wire != DType::kF64 && MayMeetSubnormals(c_, wire, columns_)) {
        flushes.push_back(Flush::kResults);
        flushes.push_back(Flush::kAll);
      }
      for (const Averaging averaging : Averagings(c_, wire)) {
        for (const Flush flush : flushes) {
          base.averaging = averaging;
          base.flush = flush;
          Hops(base);
          Groups(base);
          Wide(base);
        }
      }
    }
    return std::move(list_);
  }

 private:
  // Adds arithmetics in which each hop of a ring or tree rounds its partial sum to the wire's type.
  void Hops(Arithmetic a) {
    a.partial = a.wire;
    for (const HopRounding rounding :
         {HopRounding::kNearest, HopRounding::kTowardZero, HopRounding::kCut}) {
      if (rounding == HopRounding::kCut && FormatOf(a.wire).precision >= 24) continue;
      a.rounding = rounding;
      list_.push_back(a);
    }
  }

  // Adds arithmetics that first sum neighbouring ranks (of a node), then the sums of the groups.
  void Groups(Arithmetic a) {
    a.partial = a.wire;
    if (c_.ranks > kMostRingRows) return;
    for (int group = 2; group <= c_.ranks / 2; ++group) {
      if (c_.ranks % group != 0) continue;
      a.group = group;
      a.group_partial = a.wire;
      list_.push_back(a);
      // For two addends, a sum in f32 that is then rounded to the wire equals a sum in the wire
      // dtype.
      if (FormatOf(a.wire).precision >= 24 || group == 2) continue;
      a.group_partial = DType::kF32;
      list_.push_back(a);
    }
  }

  // Adds arithmetics with one accumulator wider than the wire, which is rounded once, when the
  // result is stored.
  void Wide(Arithmetic a) {
    if (a.wire == DType::kF64) {
      a.partial = DType::kF64;
      a.exact_only = true;
      list_.push_back(a);
      return;
    }
    a.partial = a.wire == DType::kF32 ? DType::kF64 : DType::kF32;
    std::vector<DType> stores = {c_.output_dtype};
    if (FormatOf(c_.output_dtype).precision > FormatOf(a.wire).precision) stores.push_back(a.wire);
    for (const DType store : stores) {
      a.store = store;
      for (const bool through_wire : {false, true}) {
        if (through_wire && a.averaging == Averaging::kNone) continue;
        a.through_wire = through_wire;
        for (const StoreRounding mode :
             {StoreRounding::kNearest, StoreRounding::kTowardZero, StoreRounding::kAwayFromZero}) {
          a.store_rounding = mode;
          list_.push_back(a);
        }
      }
    }
  }

  const ReductionCase& c_;
  std::span<const int32_t> columns_;
  std::vector<Arithmetic> list_;
};

// The finalizer of SplitMix64. Used for hashes of expressions, which differ if shapes may give
// different bits.
uint64_t MixedTree(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Returns the hash of x + y, equal to that of y + x.
uint64_t SumHash(uint64_t x, uint64_t y) {
  return MixedTree(MixedTree(x + y) ^ MixedTree(x ^ y ^ 0x9e3779b97f4a7c15ull));
}

// Returns the hash of one row: a rank, or the sum of a group of ranks.
uint64_t RowHash(const Arithmetic& a, int row) {
  const auto leaf = [](int rank) { return MixedTree(static_cast<uint64_t>(rank) + 1); };
  uint64_t hash = leaf(row * a.group);
  for (int r = 1; r < a.group; ++r) hash = SumHash(hash, leaf(row * a.group + r));
  const bool rounded = a.group > 1 && a.group_partial != a.partial;
  return rounded ? MixedTree(~hash) : hash;
}

// Evaluates the tree's postfix code with hashes instead of values.
uint64_t TreeHash(const Arithmetic& a, const SumTree& tree) {
  std::vector<uint64_t> stack;
  for (const int32_t op : tree.code) {
    if (op != SumTree::kAdd) {
      stack.push_back(RowHash(a, op));
      continue;
    }
    const uint64_t top = stack.back();
    stack.pop_back();
    stack.back() = SumHash(stack.back(), top);
  }
  return stack.back();
}

// Returns true if the ring visits the ranks from 0 on in ascending (direction > 0) or descending
// order.
bool IsNatural(const RingOrder& order, int direction) {
  const auto rows = static_cast<int32_t>(order.size());
  for (int32_t i = 0; i < rows; ++i) {
    const int32_t expected = direction > 0 ? i : (rows - i) % rows;
    if (order[static_cast<size_t>(i)] != expected) return false;
  }
  return true;
}

// Reports a ring by its start, direction and segments, in the natural order if it has one.
void PutRing(const SumShape& shape, const SumShapes& shapes, Parameters& p) {
  const RingOrder& order = shape.kind == Kind::kChannelRing
                               ? shapes.channel_orders[0]
                               : shapes.orders[static_cast<size_t>(shape.order)];
  // The reverse of the natural order is the natural order with descending direction.
  const bool reversed = shapes.rows > 2 && IsNatural(order, -1);
  const int direction = reversed ? -shape.direction : shape.direction;
  p["start"] = absl::StrCat(order[static_cast<size_t>(shape.shift)]);
  p["direction"] = direction > 0 ? "ascending" : "descending";
  p["segments"] = shape.map < 0 ? "constant" : shapes.maps[static_cast<size_t>(shape.map)].name;
  if (shape.map >= 0)
    p["segment_step"] = absl::StrCat(reversed ? -shape.step : static_cast<int>(shape.step));
  p["ring_order"] = "";
  if (shape.kind == Kind::kChannelRing) {
    p["ring_order"] = "by channel";
  } else if (!reversed && !IsNatural(order, 1)) {
    p["ring_order"] = absl::StrJoin(order, ",");
  }
}

}  // namespace

std::vector<Arithmetic> CandidateArithmetics(const ReductionCase& c,
                                             std::span<const int32_t> columns) {
  return ArithmeticList(c, columns).Make();
}

std::string FamilyOf(const Arithmetic& a, const SumShape& shape, const SumShapes& shapes,
                     int ranks) {
  const bool multiplied = a.averaging == Averaging::kPreMultiplied && !PowerOfTwoRanks(ranks);
  if (shape.kind == Kind::kExact) return "exact";
  if (a.wide()) return multiplied ? "premultiplied" : a.wire == DType::kF32 ? "exact" : "fp32";
  if (a.group > 1) return "grouped";
  if (shape.kind == Kind::kTree) return shapes.trees[static_cast<size_t>(shape.order)].family;
  return shape.kind == Kind::kTreePair ? "tree" : "ring";
}

std::string KinOf(const std::string& family) {
  return family == "exact" || family == "premultiplied" ? "fp32" : family;
}

Parameters ParametersOf(const Arithmetic& a, const SumShape& shape, const SumShapes& shapes) {
  Parameters p;
  p["dtype"] = DTypeName(a.exact_only ? a.wire : a.partial);
  p["wire"] = DTypeName(a.wire);
  p["rounding"] = RoundingName(a);
  p["averaging"] = AveragingName(a.averaging);
  p["flush"] = FlushName(a.flush);
  p["group"] = absl::StrCat(a.group);
  if (a.group > 2) p["group_dtype"] = DTypeName(a.group_partial);
  if (a.wide() || a.exact_only) return p;  // the order has nearly no effect on the result
  if (shape.kind == Kind::kRing || shape.kind == Kind::kChannelRing) PutRing(shape, shapes, p);
  if (shape.kind == Kind::kTree)
    p["variant"] = shapes.trees[static_cast<size_t>(shape.order)].variant;
  if (shape.kind == Kind::kTreePair)
    p["variant"] = shapes.pairs[static_cast<size_t>(shape.order) / 2].variant;
  return p;
}

uint64_t ExpressionAt(const Arithmetic& a, const SumShape& shape, const SumShapes& shapes,
                      int sample) {
  const auto column = static_cast<size_t>(sample);
  switch (shape.kind) {
    case Kind::kExact:
      return 0;
    case Kind::kTree:
      return TreeHash(a, shapes.trees[static_cast<size_t>(shape.order)].tree);
    case Kind::kTreePair: {
      const TreePair& pair = shapes.pairs[static_cast<size_t>(shape.order) / 2];
      const bool second = (shapes.second_half[column] == 1) != (shape.order % 2 != 0);
      return TreeHash(a, second ? pair.second : pair.first);
    }
    case Kind::kRing:
    case Kind::kChannelRing:
      break;
  }
  // For a ring, adds the rows in the order in which the column's segment travels.
  const SegmentMap* map = shape.map < 0 ? nullptr : &shapes.maps[static_cast<size_t>(shape.map)];
  const RingOrder* order = &shapes.orders[static_cast<size_t>(shape.order)];
  if (shape.kind == Kind::kChannelRing)
    order = &shapes.channel_orders[static_cast<size_t>(map->channel[column]) %
                                   shapes.channel_orders.size()];
  const int rows = shapes.rows;
  const int begin = map == nullptr ? shape.shift : shape.step * map->segment[column] + shape.shift;
  uint64_t hash = 0;
  for (int i = 0; i < rows; ++i) {
    const int at = ((begin + shape.direction * i) % rows + rows) % rows;
    const uint64_t row = RowHash(a, (*order)[static_cast<size_t>(at)]);
    hash = i == 0 ? row : SumHash(hash, row);
  }
  return hash;
}

bool MayMeetSubnormals(const ReductionCase& c, DType dtype, std::span<const int32_t> columns) {
  const FloatFormat f = FormatOf(dtype);
  // Differences of larger values are zero or normal numbers. A division by N needs log2 N more
  // bits.
  const int spare =
      f.precision + (c.average() ? std::bit_width(static_cast<unsigned>(c.ranks)) : 0);
  const double least = PowerOfTwo(std::min(f.min_exponent + spare, 1023));
  for (int r = 0; r < c.ranks; ++r) {
    for (const int32_t column : columns) {
      const double x = std::fabs(c.input(r, column));
      if (x > 0 && x < least) return true;
    }
  }
  return false;
}

}  // namespace plumbline::analysis
