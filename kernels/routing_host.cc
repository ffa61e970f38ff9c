// Host twin of the routing kernel: one thread, rows in order, the same bits.
#include <algorithm>
#include <cstring>

#include "kernels/routing.h"
#include "kernels/routing_plan.h"
#include "kernels/routing_row.h"
#include "kernels/routing_row_host.h"

namespace plumbline {
namespace {

// The two-level fixed-order sum described at RoutingRaw, for one quantity.
class TiledSum {
 public:
  void Put(int row_in_tile, double value) { tile_[row_in_tile] = value; }

  // Folds the tile into its stripe and clears it.
  void EndTile(int64_t tile) {
    stripe_[tile % kTileRows] += SumTree(tile_);
    std::fill_n(tile_, kTileRows, 0.0);
  }
  double Total() { return SumTree(stripe_); }

 private:
  static double SumTree(double (&v)[kTileRows]) {
    for (int step = kTileRows / 2; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i) v[i] += v[i + step];
    }
    return v[0];
  }

  double tile_[kTileRows] = {};
  double stripe_[kTileRows] = {};
};

// Everything one call needs; about 60 KiB, on the stack of the caller's thread.
class Summary {
 public:
  explicit Summary(const RoutingPlan& plan) : plan_(plan), raw_{} {
    raw_.bad_index = kNothingBad;
    raw_.bad_position = kNothingBad;
    for (int i = 0; plan.rule.has_bias && i < plan.rule.experts; ++i) {
      bias_[i] = plan.bias.Number(i);
    }
  }

  const RoutingRaw& Run() {
    ScanPositions();
    for (int64_t first = 0; first < plan_.tokens; first += kTileRows) {
      const int64_t end = std::min<int64_t>(plan_.tokens, first + kTileRows);
      for (int64_t row = first; row < end; ++row) Row(row, static_cast<int>(row - first));
      const int64_t tile = first / kTileRows;
      entropy_.EndTile(tile);
      margin_.EndTile(tile);
      z_.EndTile(tile);
    }
    raw_.entropy_sum = entropy_.Total();
    raw_.margin_sum = margin_.Total();
    raw_.z_sum = z_.Total();
    return raw_;
  }

 private:
  bool Padding(int64_t row) const {
    return plan_.padding.present() && plan_.padding.Integer(row) != 0;
  }

  void ScanPositions() {
    if (!plan_.position.present()) return;
    for (int64_t row = 0; row < plan_.tokens; ++row) {
      if (Padding(row)) continue;
      const int64_t p = plan_.position.Integer(row);
      if (p < 0 || p >= kMaxPosition) {
        raw_.bad_position = std::min(raw_.bad_position, BadPositionKey(row, p));
      } else {
        raw_.longest = std::max(raw_.longest, static_cast<uint64_t>(p) + 1);
      }
    }
  }

  void Row(int64_t row, int row_in_tile) {
    const bool padding = Padding(row);
    const double* bias = plan_.rule.has_bias ? bias_ : nullptr;
    const RowScale scale = ReadRow(plan_, row, bias, x_, &scratch_, &choice_);
    if (padding) {
      ++raw_.counts.padding;
    } else {
      CountRow(scale, row_in_tile);
    }
    CountRecorded(row, padding);
  }

  // Flags and means of a row that is not padding.
  void CountRow(const RowScale& scale, int row_in_tile) {
    RoutingCounts& c = raw_.counts;
    if (!choice_.finite) {
      ++c.non_finite;
      return;
    }
    ++c.finite;
    if (choice_.tied) ++c.tied;
    c.abs_max_bits = std::max(c.abs_max_bits, __builtin_bit_cast(uint64_t, scale.abs_max));
    if (choice_.ranked > 1) margin_.Put(row_in_tile, choice_.best_margin);
    double entropy;
    if (plan_.logits_known) {
      entropy = LogitEntropy(scale);
      z_.Put(row_in_tile, SquaredLogSum(scale));
    } else {
      entropy = ScoreEntropy(x_, plan_.rule.experts);
    }
    if (plan_.rule.experts == 1 || !(entropy == entropy)) return;
    ++c.entropy_rows;
    entropy_.Put(row_in_tile, entropy / plan_.log_experts);
  }

  void CountRecorded(int64_t row, bool padding) {
    switch (plan_.recorded) {
      case RecordedChoice::kNone:
        return CountOwn(padding);
      case RecordedChoice::kIndices:
        return CountIndices(row, padding);
      case RecordedChoice::kMap:
        return CountMap(row, padding);
    }
  }

  void CountOwn(bool padding) {
    if (!choice_.finite) return;
    for (int n = 0; n < choice_.count; ++n) ++raw_.counts.load[choice_.expert[n]];
    if (!padding) raw_.counts.choices += static_cast<uint64_t>(choice_.count);
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
        ++c.load[e];
      } else if (!padding) {
        Refuse(row, e);
      }
    }
    for (int n = 0; n < own; ++n) own_bit_[choice_.expert[n]] = 0;
    if (padding) return;
    c.choices += static_cast<uint64_t>(recorded);
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
      ++c.load[e];
    }
    if (padding) return;
    c.choices += static_cast<uint64_t>(kept);
    if (!Judged()) return;
    for (int n = 0; n < choice_.count; ++n) {
      if (KeptInMap(plan_, row, choice_.expert[n])) covered |= 1u << n;
    }
    if (kept != __builtin_popcount(covered)) {
      ++c.unexplained;  // and does not say whom it refused
      return;
    }
    for (int n = 0; n < choice_.count; ++n) {
      if ((covered >> n & 1u) != 0) continue;
      ++c.choices;
      Refuse(row, choice_.expert[n]);
    }
  }

  void Refuse(int64_t row, int64_t expert) {
    ++raw_.counts.refused[expert];
    ++raw_.counts.dropped;
    if (!plan_.position.present()) return;
    const int64_t p = plan_.position.Integer(row);
    if (p < 0 || p >= kMaxPosition) return;  // bad_position reports it
    ++raw_.counts.drop_histogram[DropBin(p, raw_.longest)];
  }

  bool Judged() const { return choice_.finite && !choice_.tied; }
  static uint32_t AllOf(int n) { return n == 32 ? ~0u : (1u << n) - 1; }

  const RoutingPlan& plan_;
  RoutingRaw raw_;
  TiledSum entropy_;
  TiledSum margin_;
  TiledSum z_;
  RouterChoice choice_;
  RouterScratch scratch_;
  uint32_t own_bit_[kMaxExperts] = {};  // 1 << rank of the row's own choices, 0 elsewhere
  double x_[kMaxExperts];
  double bias_[kMaxExperts];
};

}  // namespace

absl::Status SummariseRouting(const RoutingInput& in, RoutingStats* out) {
  RoutingPlan plan;
  if (absl::Status status = PlanRouting(in, &plan); !status.ok()) return status;
  if (!in.scores.on_host()) {
    return absl::InvalidArgumentError("scores: expected a host tensor, found one on a device");
  }
  Summary summary(plan);
  return FinishRouting(plan, summary.Run(), out);
}

}  // namespace plumbline
