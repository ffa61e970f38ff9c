// CPU reference of the routing kernel: the same bits for any number of threads.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/router/rows.h"
#include "kernels/routing/plan.h"
#include "kernels/routing/pools.h"
#include "kernels/routing/routing.h"
#include "kernels/routing/row.h"

namespace plumbline {
namespace {

// With less work, starting a thread costs more than it saves.
constexpr int64_t kTilesWorthAThread = 32;

// The quantities that are summed as in RoutingRaw's comment.
enum Quantity { kEntropy, kMargin, kZ, kQuantities };
using Values = std::array<double, kTileRows>;
using Partial = std::array<double, kQuantities>;

double SumTree(Values& v) {
  for (size_t step = kTileRows / 2; step > 0; step /= 2) {
    for (size_t i = 0; i < step; ++i) v[i] += v[i + step];
  }
  return v[0];
}

double SumStripes(const std::vector<Partial>& tiles, Quantity q) {
  Values stripe{};
  for (size_t tile = 0; tile < tiles.size(); ++tile) stripe[tile % kTileRows] += tiles[tile][q];
  return SumTree(stripe);
}

bool Padding(const RoutingPlan& plan, int64_t row) {
  return plan.padding.present() && plan.padding.Integer(row) != 0;
}

void ScanPositions(const RoutingPlan& plan, RoutingRaw* raw) {
  if (!plan.position.present()) return;
  for (int64_t row = 0; row < plan.tokens; ++row) {
    if (Padding(plan, row)) continue;
    const int64_t p = plan.position.Integer(row);
    if (p < 0 || p >= kMaxPosition) {
      raw->bad_position = std::min(raw->bad_position, BadPositionKey(row, p));
    } else {
      raw->longest = std::max(raw->longest, static_cast<uint64_t>(p) + 1);
    }
  }
}

// Every thread of a call has separate cells, because shared cells of few experts would move between
// caches.
struct HostOps {
  template <typename T>
  static T Peek(const T* p) {
    return *p;
  }
  static uint32_t Add(uint32_t* p, uint32_t n) { return std::exchange(*p, *p + n); }
  static void Max(uint64_t* p, uint64_t v) { *p = std::max(*p, v); }
  static uint64_t Swap(uint64_t* p, uint64_t expected, uint64_t desired) {
    const uint64_t there = *p;
    if (there == expected) *p = desired;
    return there;
  }
};

// The tables and cells of one call, sized by its numbers of pools and units.
class HostPools {
 public:
  HostPools(const RoutingPlan& plan, int threads) : plan_(plan) {
    parts_.resize(static_cast<size_t>(threads));
    if (!plan.fates_known) return;
    tables_ = std::make_unique<PoolTables>();
    const PoolMemory tables{.tables = tables_.get()};
    uint64_t last = 0;
    for (int64_t row = 0; row < plan.tokens; ++row) {
      const uint64_t key = plan.units_known ? UnitKey(plan, row) : PoolKey(plan, row);
      if (key == last) continue;
      EnterRow<HostOps>(plan, row, tables);
      last = key;
    }
    if (!PoolsMeasured(tables)) return;
    const auto experts = static_cast<size_t>(plan.rule.experts);
    const bool units = plan.units_known && tables_->units.count <= kMaxUnits;
    for (Part& part : parts_) {
      part.cells.resize(tables_->pools.count * experts);
      if (units) part.units.resize(tables_->units.count * experts);
    }
  }

  // Returns one thread's memory.
  PoolMemory memory(int thread) {
    Part& part = parts_[static_cast<size_t>(thread)];
    return {tables_.get(), part.cells.data(), part.units.empty() ? nullptr : part.units.data()};
  }

  void Fold(RoutingPools* result) {
    for (size_t p = 1; p < parts_.size(); ++p) Merge(parts_[p], &parts_[0]);
    for (const PoolCell& cell : parts_[0].cells) FoldCell<HostOps>(cell, result);
    for (size_t i = 0; i < parts_[0].units.size(); ++i) {
      const auto expert = static_cast<int32_t>(i % static_cast<size_t>(plan_.rule.experts));
      FoldUnitCell<HostOps>(parts_[0].units[i], expert, result);
    }
    EndPools(plan_, memory(0), result);
  }

 private:
  struct Part {
    std::vector<PoolCell> cells;
    std::vector<UnitCell> units;
  };

  static void Merge(const Part& from, Part* to) {
    for (size_t i = 0; i < from.cells.size(); ++i) {
      PoolCell& cell = to->cells[i];
      cell.held += from.cells[i].held;
      cell.refused += from.cells[i].refused;
      cell.lowest_kept = std::max(cell.lowest_kept, from.cells[i].lowest_kept);
      cell.highest_refused = std::max(cell.highest_refused, from.cells[i].highest_refused);
    }
    for (size_t i = 0; i < from.units.size(); ++i) {
      UnitCell& unit = to->units[i];
      unit.first_refused = std::max(unit.first_refused, from.units[i].first_refused);
      unit.last_kept = std::max(unit.last_kept, from.units[i].last_kept);
    }
  }

  const RoutingPlan& plan_;
  std::unique_ptr<PoolTables> tables_;
  std::vector<Part> parts_;
};

// Measures whole tiles; one per thread, about 60 KiB.
class TileMeasure {
 public:
  TileMeasure(const RoutingPlan& plan, uint64_t longest, const PoolMemory& pools)
      : plan_(plan),
        pools_(pools),
        scores_{plan.scores.data, plan.scores.row, plan.scores.column, plan.scores.dtype} {
    raw_.bad_index = kNothingBad;
    raw_.longest = longest;
    for (int i = 0; plan.rule.has_bias && i < plan.rule.experts; ++i) {
      bias_[i] = plan.bias.Number(i);
    }
  }

  Partial Tile(int64_t tile) {
    for (Values& v : values_) v.fill(0);
    const int64_t first = tile * kTileRows;
    const int64_t end = std::min<int64_t>(plan_.tokens, first + kTileRows);
    for (int64_t row = first; row < end; ++row) Row(row, static_cast<size_t>(row - first));
    Partial sums;
    for (size_t q = 0; q < kQuantities; ++q) sums[q] = SumTree(values_[q]);
    return sums;
  }

  const RoutingRaw& raw() const { return raw_; }  // counts and bad_index of the tiles so far

 private:
  void Row(int64_t row, size_t row_in_tile) {
    const bool padding = Padding(plan_, row);
    const double* bias = plan_.rule.has_bias ? bias_ : nullptr;
    const RowScale scale = ReadRouterRow(plan_.rule, scores_, row, bias, x_, &scratch_, &choice_);
    if (padding) {
      ++raw_.counts.padding;
    } else {
      CountRow(scale, row_in_tile);
    }
    CountRecorded(row, padding);
  }

  // Counts flags and means of a row that is not padding.
  void CountRow(const RowScale& scale, size_t row_in_tile) {
    RoutingCounts& c = raw_.counts;
    if (!choice_.finite) {
      ++c.non_finite;
      return;
    }
    ++c.finite;
    if (choice_.tied) ++c.tied;
    c.abs_max_bits = std::max(c.abs_max_bits, __builtin_bit_cast(uint64_t, scale.abs_max));
    if (choice_.ranked > 1) {
      ++c.margin_rows;
      values_[kMargin][row_in_tile] = choice_.best_margin;
    }
    double entropy;
    if (plan_.logits_known) {
      entropy = LogitEntropy(scale);
      values_[kZ][row_in_tile] = SquaredLogSum(scale);
    } else {
      entropy = ScoreEntropy(x_, plan_.rule.experts);
    }
    if (plan_.rule.experts == 1 || !(entropy == entropy)) return;
    ++c.entropy_rows;
    values_[kEntropy][row_in_tile] = entropy / plan_.log_experts;
  }

  void CountRecorded(int64_t row, bool padding) {
    switch (plan_.recorded) {
      case RecordedChoice::kNone:
        return CountOwn(row, padding);
      case RecordedChoice::kIndices:
        return CountIndices(row, padding);
      case RecordedChoice::kMap:
        return CountMap(row, padding);
    }
  }

  void CountOwn(int64_t row, bool padding) {
    if (!choice_.finite) return;
    for (int n = 0; n < choice_.count; ++n) ++raw_.counts.load[choice_.expert[n]];
    if (!padding) CountChoices(row, choice_.count);
  }

  void CountIndices(int64_t row, bool padding) {
    RoutingCounts& c = raw_.counts;
    int recorded = 0;
    uint32_t covered = 0;  // bit n: own choice n was recorded
    const int own = choice_.finite ? choice_.count : 0;
    for (int n = 0; n < own; ++n) own_bit_[choice_.expert[n]] = 1u << n;
    for (int j = 0; j < plan_.rule.top_k; ++j) {
      const int64_t e = plan_.topk.Integer(row, j);
      if (e == -1) continue;
      if (e < -1 || e >= plan_.rule.experts) {
        raw_.bad_index = std::min(raw_.bad_index, BadIndexKey(row, j, e));
        continue;
      }
      ++recorded;
      covered |= own_bit_[e];
      if (KeptIndex(plan_, row, j, e)) {
        Keep(row, e, padding);
      } else if (!padding) {
        Refuse(row, e);
      }
    }
    for (int n = 0; n < own; ++n) own_bit_[choice_.expert[n]] = 0;
    if (padding) return;
    CountChoices(row, recorded);
    if (Judged() && (recorded != choice_.count || covered != AllOf(choice_.count))) {
      ++c.unexplained;
    }
  }

  void CountMap(int64_t row, bool padding) {
    RoutingCounts& c = raw_.counts;
    int kept = 0;
    uint32_t covered = 0;
    for (int e = 0; e < plan_.rule.experts; ++e) {
      if (!KeptInMap(plan_, row, e)) continue;
      ++kept;
      Keep(row, e, padding);
    }
    if (padding) return;
    CountChoices(row, kept);
    if (!Judged()) return;
    for (int n = 0; n < choice_.count; ++n) {
      if (KeptInMap(plan_, row, choice_.expert[n])) covered |= 1u << n;
    }
    if (kept != __builtin_popcount(covered)) {
      ++c.unexplained;  // the record does not show the refusals of this row
      return;
    }
    for (int n = 0; n < choice_.count; ++n) {
      if ((covered >> n & 1u) != 0) continue;
      CountChoices(row, 1);
      Refuse(row, choice_.expert[n]);
    }
  }

  void Keep(int64_t row, int64_t expert, bool padding) {
    ++raw_.counts.load[expert];
    if (!plan_.fates_known) return;
    CountFate<HostOps>(plan_, pools_, row, static_cast<int32_t>(expert), true, padding);
  }

  void Refuse(int64_t row, int64_t expert) {
    if (plan_.fates_known) {
      CountFate<HostOps>(plan_, pools_, row, static_cast<int32_t>(expert), false, false);
    }
    ++raw_.counts.refused[expert];
    ++raw_.counts.dropped;
    const int bin = BinOf(row);
    if (bin >= 0) ++raw_.counts.drop_histogram[bin];
  }

  void CountChoices(int64_t row, int n) {
    raw_.counts.choices += static_cast<uint64_t>(n);
    const int bin = BinOf(row);
    if (bin >= 0) raw_.counts.offered_histogram[bin] += static_cast<uint64_t>(n);
  }

  // Returns -1 without a valid position; bad_position reports invalid ones.
  int BinOf(int64_t row) const {
    if (!plan_.position.present()) return -1;
    const int64_t p = plan_.position.Integer(row);
    return p < 0 || p >= kMaxPosition ? -1 : DropBin(p, raw_.longest);
  }

  bool Judged() const { return choice_.finite && !choice_.tied; }
  static uint32_t AllOf(int n) { return n == 32 ? ~0u : (1u << n) - 1; }

  const RoutingPlan& plan_;
  PoolMemory pools_;
  ScoreRows scores_;
  RoutingRaw raw_{};
  std::array<Values, kQuantities> values_;
  RouterChoice choice_;
  RouterScratch scratch_;
  uint32_t own_bit_[kMaxExperts] = {};  // 1 << rank of the row's own choices, 0 elsewhere
  double x_[kMaxExperts];
  double bias_[kMaxExperts];
};

void AddCounts(const RoutingRaw& from, int experts, RoutingRaw* to) {
  const RoutingCounts& f = from.counts;
  RoutingCounts& t = to->counts;
  for (auto member :
       {&RoutingCounts::padding, &RoutingCounts::tied, &RoutingCounts::non_finite,
        &RoutingCounts::unexplained, &RoutingCounts::choices, &RoutingCounts::dropped,
        &RoutingCounts::finite, &RoutingCounts::entropy_rows, &RoutingCounts::margin_rows}) {
    t.*member += f.*member;
  }
  t.abs_max_bits = std::max(t.abs_max_bits, f.abs_max_bits);
  for (int i = 0; i < kDropBins; ++i) {
    t.drop_histogram[i] += f.drop_histogram[i];
    t.offered_histogram[i] += f.offered_histogram[i];
  }
  for (int e = 0; e < experts; ++e) {
    t.load[e] += f.load[e];
    t.refused[e] += f.refused[e];
  }
  to->bad_index = std::min(to->bad_index, from.bad_index);
}

}  // namespace

RoutingRaw MeasureRouting(const RoutingPlan& plan, int threads) {
  RoutingRaw raw{};
  raw.bad_index = kNothingBad;
  raw.bad_position = kNothingBad;
  ScanPositions(plan, &raw);
  const int64_t tiles = (plan.tokens + kTileRows - 1) / kTileRows;
  const auto parts = static_cast<int>(
      std::clamp<int64_t>(threads, 1, (tiles + kTilesWorthAThread - 1) / kTilesWorthAThread));
  HostPools pools(plan, parts);
  std::vector<Partial> partials(static_cast<size_t>(tiles));
  std::vector<std::unique_ptr<TileMeasure>> measures;
  for (int p = 0; p < parts; ++p) {
    measures.push_back(std::make_unique<TileMeasure>(plan, raw.longest, pools.memory(p)));
  }
  ParallelParts(tiles, parts, [&](int part, int64_t first, int64_t last) {
    TileMeasure& measure = *measures[static_cast<size_t>(part)];
    for (int64_t t = first; t < last; ++t) partials[static_cast<size_t>(t)] = measure.Tile(t);
  });
  for (const auto& measure : measures) AddCounts(measure->raw(), plan.rule.experts, &raw);
  pools.Fold(&raw.pools);
  raw.entropy_sum = SumStripes(partials, kEntropy);
  raw.margin_sum = SumStripes(partials, kMargin);
  raw.z_sum = SumStripes(partials, kZ);
  return raw;
}

absl::Status SummariseRouting(const RoutingInput& in, RoutingStats* out, int threads) {
  RoutingPlan plan;
  if (absl::Status status = PlanRouting(in, &plan); !status.ok()) return status;
  if (!in.scores.on_host()) {
    return absl::InvalidArgumentError("scores: expected a host tensor, found one on a device");
  }
  return FinishRouting(plan, MeasureRouting(plan, threads), out);
}

}  // namespace plumbline
