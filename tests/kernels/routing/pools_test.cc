// Compares pools and their order of admission with the definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "kernels/routing/routing.h"
#include "tests/kernels/routing/case.h"
#include "tests/kernels/routing/stats_equal.h"

namespace plumbline {
namespace {

// Computes pools and orders by definition, with tables of every cell and unit.
class PoolReference {
 public:
  explicit PoolReference(const RoutingInput& in) : in_(in) {
    for (int64_t i = 0; i < in.scores.shape[0]; ++i) {
      pools_.insert(Pool(i));
      units_.insert({Pool(i), in.sequence_id.present() ? Int64At(in.sequence_id, i) : 0});
      for (int64_t j = 0; j < in.top_k; ++j) Choice(i, j);
    }
  }

  RoutingPoolStats Run() const {
    RoutingPoolStats out;
    out.measured = pools_.size() <= 64;
    if (!out.measured) return out;
    out.pools = static_cast<uint32_t>(pools_.size());
    for (const auto& [key, cell] : cells_) {
      out.most_held = std::max(out.most_held, cell.held);
      if (cell.refused == 0) continue;
      out.least_held_refusing =
          out.refusing_cells == 0 ? cell.held : std::min(out.least_held_refusing, cell.held);
      out.most_held_refusing = std::max(out.most_held_refusing, cell.held);
      ++out.refusing_cells;
      out.separable_cells += cell.lowest_kept >= cell.highest_refused ? 1 : 0;
    }
    out.order_measured = in_.sequence_id.present() && units_.size() <= 1024;
    if (!out.order_measured) return out;
    std::pair<int64_t, int64_t> first{INT64_MAX, 0};
    for (const auto& [key, unit] : orders_) {
      if (unit.kept.empty() || unit.refused.empty()) continue;
      if (unit.refused.begin()->first >= unit.kept.rbegin()->first) continue;
      ++out.inverted_cells;
      const std::pair<int64_t, int64_t> pair{unit.refused.begin()->second, std::get<2>(key)};
      if (pair >= first) continue;
      first = pair;
      out.refused_row = pair.first;
      out.expert = static_cast<int32_t>(pair.second);
      out.admitted_row = unit.kept.rbegin()->second;
    }
    return out;
  }

 private:
  struct Cell {
    uint64_t held = 0;
    uint64_t refused = 0;
    double lowest_kept = INFINITY;
    double highest_refused = -INFINITY;
  };
  struct Order {
    std::set<std::pair<int64_t, int64_t>> kept;  // (position, row)
    std::set<std::pair<int64_t, int64_t>> refused;
  };

  int64_t Pool(int64_t i) const { return in_.pool_id.present() ? Int64At(in_.pool_id, i) : 0; }

  void Choice(int64_t i, int64_t j) {
    const int64_t e = Int64At(in_.topk_indices, i, j);
    if (e < 0) return;
    const bool kept = Int64At(in_.keep_mask, i, j) != 0;
    const bool padding = in_.padding_mask.present() && Int64At(in_.padding_mask, i) != 0;
    if (padding && !kept) return;
    Cell& cell = cells_[{Pool(i), e}];
    ++(kept ? cell.held : cell.refused);
    const double x = DoubleAt(in_.scores, i, e);
    if (padding) return;
    if (kept && !std::isnan(x)) cell.lowest_kept = std::min(cell.lowest_kept, x);
    if (!kept && !std::isnan(x)) cell.highest_refused = std::max(cell.highest_refused, x);
    if (!in_.sequence_id.present()) return;
    Order& order = orders_[{Pool(i), Int64At(in_.sequence_id, i), e}];
    (kept ? order.kept : order.refused).insert({Int64At(in_.position, i), i});
  }

  const RoutingInput& in_;
  std::set<int64_t> pools_;
  std::set<std::pair<int64_t, int64_t>> units_;
  std::map<std::pair<int64_t, int64_t>, Cell> cells_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, Order> orders_;
};

TEST(RoutingHost, PoolsAreCountedByDefinition) {
  int measured = 0, ordered = 0, inverted = 0, many = 0;
  for (uint32_t seed = 0; seed < 700; ++seed) {
    SCOPED_TRACE(seed);
    const RoutingCase c = CaseMaker(seed).Make();
    if (!c.in.keep_mask.present()) continue;
    const RoutingPoolStats want = PoolReference(c.in).Run();
    RoutingStats got;
    ASSERT_TRUE(SummariseRouting(c.in, &got).ok());
    ExpectSame(got.pools, want);
    if (testing::Test::HasFailure()) return;
    measured += want.measured && want.pools > 1 ? 1 : 0;
    many += want.measured ? 0 : 1;
    ordered += want.order_measured ? 1 : 0;
    inverted += want.inverted_cells > 0 ? 1 : 0;
  }
  EXPECT_GT(measured, 25);
  EXPECT_GT(many, 1);
  EXPECT_GT(ordered, 50);
  EXPECT_GT(inverted, 25);
}

}  // namespace
}  // namespace plumbline
