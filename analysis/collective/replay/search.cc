#include "analysis/collective/replay/search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "analysis/collective/replay/settled.h"
#include "analysis/collective/replay/values.h"
#include "base/exact_sum.h"

namespace plumbline::analysis {
namespace {

using Kind = SumShape::Kind;

SampleMask FirstBits(int n) { return n == 64 ? ~SampleMask{0} : (SampleMask{1} << n) - 1; }

bool GivenUp(const MatchCounts& t, int enough) { return t.missed >= enough; }

// Keeps the abandoned candidate that explained most samples, for each class of shapes.
class BestGivenUp {
 public:
  explicit BestGivenUp(const SumShapes& shapes) : shapes_(shapes) {}

  void Take(const MatchCounts& t) {
    MatchCounts& best = best_[Class(t.shape)];
    if (best.tested == 0 || Share(t) > Share(best)) best = t;
  }
  std::vector<MatchCounts> Done() const {
    std::vector<MatchCounts> out;
    for (const MatchCounts& t : best_) {
      if (t.tested > 0) out.push_back(t);
    }
    return out;
  }

 private:
  static double Share(const MatchCounts& t) { return 1 - static_cast<double>(t.missed) / t.tested; }
  size_t Class(const SumShape& shape) const {
    if (shape.kind == Kind::kExact) return 3;
    if (shape.kind == Kind::kTreePair) return 1;
    if (shape.kind != Kind::kTree) return 0;
    return shapes_.trees[static_cast<size_t>(shape.order)].family[0] == 't' ? 1 : 2;
  }

  const SumShapes& shapes_;
  std::array<MatchCounts, 4> best_{};
};

// Searches the shapes of one arithmetic on a list of columns.
template <typename T>
class Search {
 public:
  Search(const ReductionCase& c, const Arithmetic& a, const SumShapes& shapes)
      : c_(c), a_(a), shapes_(shapes) {}

  // Starts with all shapes as candidates.
  void Start(int arithmetic) {
    MatchCounts fresh;
    fresh.arithmetic = arithmetic;
    const auto rows = static_cast<int32_t>(shapes_.rows);
    const auto orders = static_cast<int32_t>(shapes_.orders.size());
    const auto maps = static_cast<int16_t>(shapes_.maps.size());
    const auto rings = [&](Kind kind, int32_t order, int16_t map, bool both) {
      for (const int direction : {1, -1}) {
        if (direction < 0 && !both) continue;
        for (const int step : {1, -1}) {
          if (map < 0 && step < 0) continue;
          for (int32_t shift = 0; shift < rows; ++shift) {
            alive_.push_back(fresh);
            alive_.back().shape = {
                kind, static_cast<int8_t>(direction), static_cast<int8_t>(step), map, order, shift};
          }
        }
      }
    };
    for (int32_t order = 0; order < orders; ++order) {
      for (int16_t map = -1; map < maps; ++map) rings(Kind::kRing, order, map, !shapes_.all_orders);
    }
    for (int16_t map = 0; map < maps; ++map) {
      if (!shapes_.channel_orders.empty() && !MapOf(map).channel.empty())
        rings(Kind::kChannelRing, 0, map, true);
    }
    for (size_t t = 0; t < shapes_.trees.size(); ++t) {
      alive_.push_back(fresh);
      alive_.back().shape.kind = Kind::kTree;
      alive_.back().shape.order = static_cast<int32_t>(t);
    }
    for (size_t p = 0; p < 2 * shapes_.pairs.size(); ++p) {
      alive_.push_back(fresh);
      alive_.back().shape.kind = Kind::kTreePair;
      alive_.back().shape.order = static_cast<int32_t>(p);
    }
  }

  // Sets the columns of the next blocks; they must outlive their use.
  void Load(std::span<const int32_t> columns) {
    columns_ = columns;
    values_.emplace(c_, a_, columns);
  }

  // Tests the remaining candidates on the loaded columns.
  void Run(int enough, BestGivenUp& best) {
    const int block = shapes_.rows > 256 ? 16 : kBlockSamples;
    for (int first = 0; first < values_->samples() && !alive_.empty(); first += block) {
      Block(first, std::min(block, values_->samples() - first));
      Drop(enough, best);
    }
  }

  // Adds samples that either all candidates explain, or none.
  void TakeAlike(int32_t tested, int32_t missed, int enough, BestGivenUp& best) {
    for (MatchCounts& t : alive_) {
      t.tested += tested;
      t.missed += missed;
    }
    Drop(enough, best);
  }

  const std::vector<MatchCounts>& alive() const { return alive_; }

  SampleMask Explained(const SumShape& shape, int first, int n) {
    switch (shape.kind) {
      case Kind::kTree:
        return values_->Tree(shapes_.trees[static_cast<size_t>(shape.order)].tree, first, n);
      case Kind::kTreePair:
        return Pair(shape, first, n);
      case Kind::kRing:
      case Kind::kChannelRing:
        return Ring(shape, first, n);
      case Kind::kExact:
        break;
    }
    return 0;
  }

 private:
  const SegmentMap& MapOf(int map) const { return shapes_.maps[static_cast<size_t>(map)]; }
  size_t Column(int sample) const {
    return static_cast<size_t>(columns_[static_cast<size_t>(sample)]);
  }
  int Position(const SumShape& shape, int segment) const {
    const int rows = shapes_.rows;
    return ((shape.step * segment + shape.shift) % rows + rows) % rows;
  }

  void Drop(int enough, BestGivenUp& best) {
    std::erase_if(alive_, [&](const MatchCounts& t) {
      if (!GivenUp(t, enough)) return false;
      best.Take(t);
      return true;
    });
  }

  // Computes all rings from the chains of every start, or each ring by its own sums, depending on
  // the cost.
  void Block(int first, int n) {
    const auto rows = static_cast<double>(shapes_.rows);
    const auto rings =
        static_cast<double>(std::count_if(alive_.begin(), alive_.end(), [](const MatchCounts& t) {
          return t.shape.kind == Kind::kRing;
        }));
    double dense = 2 * static_cast<double>(shapes_.orders.size()) * rows * rows;
    if (shapes_.all_orders) dense = 2.8 * static_cast<double>(shapes_.orders.size()) * rows;
    const bool all = 3 * rings * rows > dense;
    if (all) FillMasks(first, n);
    for (MatchCounts& t : alive_) {
      const SampleMask explained =
          all && t.shape.kind == Kind::kRing ? FromMasks(t.shape) : Explained(t.shape, first, n);
      t.tested += n;
      t.missed += std::popcount(~explained & FirstBits(n));
    }
  }

  // Sets masks_[(order, direction, start)] and, for each map, the samples of each segment.
  void FillMasks(int first, int n) {
    if (shapes_.all_orders) {
      AllChains(*values_, first, n, masks_);
    } else {
      masks_.clear();
      RingOrder sequence(static_cast<size_t>(shapes_.rows));
      for (const RingOrder& order : shapes_.orders) {
        for (const int direction : {1, -1}) {
          for (int start = 0; start < shapes_.rows; ++start) {
            for (int i = 0; i < shapes_.rows; ++i) {
              const int at = (start + direction * i + shapes_.rows) % shapes_.rows;
              sequence[static_cast<size_t>(i)] = order[static_cast<size_t>(at)];
            }
            masks_.push_back(values_->Chain(sequence, first, n));
          }
        }
      }
    }
    parts_.assign(shapes_.maps.size(), {});
    for (size_t map = 0; map < shapes_.maps.size(); ++map) FillParts(map, first, n);
  }

  void FillParts(size_t map, int first, int n) {
    std::vector<Part>& parts = parts_[map];
    const auto add = [&](int32_t segment, int i) {
      for (Part& part : parts) {
        if (part.segment == segment) {
          part.samples |= SampleMask{1} << i;
          return;
        }
      }
      parts.push_back({segment, SampleMask{1} << i});
    };
    for (int i = 0; i < n; ++i) {
      const size_t column = Column(first + i);
      add(shapes_.maps[map].segment[column], i);
      if (shapes_.maps[map].other[column] >= 0) add(shapes_.maps[map].other[column], i);
    }
  }

  SampleMask FromMasks(const SumShape& shape) const {
    const auto rows = static_cast<size_t>(shapes_.rows);
    size_t base = static_cast<size_t>(shape.order) * rows;
    if (!shapes_.all_orders) base = 2 * base + (shape.direction < 0 ? rows : 0);
    if (shape.map < 0) return masks_[base + static_cast<size_t>(shape.shift)];
    SampleMask mask = 0;
    for (const Part& part : parts_[static_cast<size_t>(shape.map)])
      mask |= masks_[base + static_cast<size_t>(Position(shape, part.segment))] & part.samples;
    return mask;
  }

  // Returns the samples that a ring explains. A sample near a boundary may belong to either
  // segment.
  SampleMask Ring(const SumShape& shape, int first, int n) {
    std::array<int32_t, kBlockSamples> starts{};
    bool boundary = false;
    for (int i = 0; i < n; ++i) {
      int start = shape.shift;
      if (shape.map >= 0) {
        start = Position(shape, MapOf(shape.map).segment[Column(first + i)]);
        boundary |= MapOf(shape.map).other[Column(first + i)] >= 0;
      }
      starts[static_cast<size_t>(i)] = start;
    }
    SampleMask mask = Sums(shape, starts.data(), first, n);
    if (!boundary) return mask;
    for (int i = 0; i < n; ++i) {
      const int32_t other = MapOf(shape.map).other[Column(first + i)];
      if (other >= 0) starts[static_cast<size_t>(i)] = Position(shape, other);
    }
    return mask | Sums(shape, starts.data(), first, n);
  }

  SampleMask Sums(const SumShape& shape, const int32_t* starts, int first, int n) {
    if (shape.kind == Kind::kRing) {
      return values_->Rings(shapes_.orders[static_cast<size_t>(shape.order)], starts,
                            shape.direction, first, n);
    }
    std::vector<std::span<const int32_t>> orders;
    for (int i = 0; i < n; ++i) {
      const auto channel = static_cast<size_t>(MapOf(shape.map).channel[Column(first + i)]);
      orders.emplace_back(shapes_.channel_orders[channel % shapes_.channel_orders.size()]);
    }
    return values_->Rings(orders, starts, shape.direction, first, n);
  }

  // Pair p has the numbers 2p and 2p+1: its first tree takes the first half of the buffer, or the
  // second half.
  SampleMask Pair(const SumShape& shape, int first, int n) {
    const TreePair& pair = shapes_.pairs[static_cast<size_t>(shape.order) / 2];
    const bool swapped = shape.order % 2 != 0;
    SampleMask in_first = 0;
    SampleMask in_second = 0;
    for (int i = 0; i < n; ++i) {
      const int8_t half = shapes_.second_half[Column(first + i)];
      if (half != 1) in_first |= SampleMask{1} << i;
      if (half != 0) in_second |= SampleMask{1} << i;
    }
    const SampleMask a = values_->Tree(swapped ? pair.second : pair.first, first, n);
    const SampleMask b = values_->Tree(swapped ? pair.first : pair.second, first, n);
    return (a & in_first) | (b & in_second);
  }

  struct Part {
    int32_t segment;
    SampleMask samples;
  };

  const ReductionCase& c_;
  const Arithmetic& a_;
  const SumShapes& shapes_;
  std::span<const int32_t> columns_;
  std::optional<ReductionValues<T>> values_;
  std::vector<MatchCounts> alive_;
  std::vector<SampleMask> masks_;
  std::vector<std::vector<Part>> parts_;
};

void Sort(const std::vector<MatchCounts>& alive, SearchResult& result) {
  for (const MatchCounts& t : alive) (t.missed == 0 ? result.accepted : result.near).push_back(t);
}

template <typename T>
SearchResult RunSearch(const ReductionCase& c, const Arithmetic& a, int arithmetic,
                       const SumShapes& shapes, std::span<const int32_t> columns, int enough) {
  SearchResult result;
  BestGivenUp best(shapes);
  Search<T> search(c, a, shapes);
  if (!a.exact_only) search.Start(arithmetic);
  MatchCounts exact;
  exact.arithmetic = arithmetic;
  exact.shape.kind = Kind::kExact;
  bool exact_alive = ExactApplies(a);
  // Tests few columns first, because most arithmetics fail there, and the other columns then need
  // no preparation.
  size_t length = 128;
  for (size_t first = 0; first < columns.size(); first += length, length = 1024) {
    const auto part = columns.subspan(first, std::min(length, columns.size() - first));
    const SettledSamples settled = Settle(c, a, part, enough);
    search.TakeAlike(settled.tested, settled.missed, enough, best);
    if (!search.alive().empty()) {
      search.Load(settled.open);
      search.Run(enough, best);
    }
    exact.tested += settled.exact_tested;
    exact.missed += settled.exact_missed;
    if (exact_alive && GivenUp(exact, enough)) {
      exact_alive = false;
      best.Take(exact);
    }
    if (search.alive().empty() && !exact_alive) break;
  }
  Sort(search.alive(), result);
  if (exact_alive) Sort({exact}, result);
  result.best = best.Done();
  return result;
}

template <typename T>
void Further(const ReductionCase& c, const Arithmetic& a, const SumShapes& shapes,
             std::span<const int32_t> columns, std::vector<MatchCounts>& tallies) {
  Search<T> search(c, a, shapes);
  search.Load(columns);
  const auto m = static_cast<int>(columns.size());
  for (MatchCounts& t : tallies) {
    t.tested += m;
    if (t.shape.kind == Kind::kExact) {
      t.missed += m - CountExact(c, a, columns);
      continue;
    }
    for (int first = 0; first < m; first += kBlockSamples) {
      const int n = std::min(kBlockSamples, m - first);
      t.missed += std::popcount(~search.Explained(t.shape, first, n) & FirstBits(n));
    }
  }
}

}  // namespace

SearchResult SearchArithmetic(const ReductionCase& c, const Arithmetic& a, int arithmetic,
                              const SumShapes& shapes, std::span<const int32_t> columns,
                              int enough) {
  return a.partial == DType::kF64 ? RunSearch<double>(c, a, arithmetic, shapes, columns, enough)
                                  : RunSearch<float>(c, a, arithmetic, shapes, columns, enough);
}

void TestFurther(const ReductionCase& c, const Arithmetic& a, const SumShapes& shapes,
                 std::span<const int32_t> columns, std::vector<MatchCounts>& tallies) {
  if (columns.empty() || tallies.empty()) return;
  if (a.partial == DType::kF64) {
    Further<double>(c, a, shapes, columns, tallies);
  } else {
    Further<float>(c, a, shapes, columns, tallies);
  }
}

int32_t CountMatches(const ReductionCase& c, const Arithmetic& a, const SumShapes& shapes,
                     const SumShape& shape, std::span<const int32_t> columns) {
  std::vector<MatchCounts> one(1);
  one[0].shape = shape;
  TestFurther(c, a, shapes, columns, one);
  return one[0].tested - one[0].missed;
}

}  // namespace plumbline::analysis
