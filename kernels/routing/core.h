// One row of the routing measurement by a warp: 32 lanes, expert i on lane i % 32.
//
// A template over the warp, so that the same text is the device kernel (routing.cu) and, with 32
// emulated lanes, a host program that tests compare with the CPU reference: same integers, same
// bits of the means. A Warp has
//   Var<T>             one T a lane, v[lane]
//   Each(f)            f(lane) for every lane this thread stands for (a device thread: its own)
//   Sum, Max, Any, Ballot, Best, At(v, lane)    the same result on every lane; sums as a butterfly
// and a Sink takes counts:
//   Add(&RoutingCounts::member)  AbsMax(bits)  Load(e)  Refused(e)  DropBin(bin)  OfferBin(bin, n)
//   BadIndex(key)
//   Fate(plan, row, e, kept, padding)    of choices whose fate is recorded: see CountFate
// once per event, from whichever lane saw it.
#pragma once

#include <cstdint>

#include "kernels/core/device_code.h"
#include "kernels/routing/choice.h"
#include "kernels/routing/plan.h"
#include "kernels/routing/pools.h"
#include "kernels/routing/row.h"

namespace plumbline {

// Means of a row; 0 and false if a row has none.
struct RowMeans {
  double entropy = 0;
  double margin = 0;
  double z = 0;
};

// For each slot: called, not inlined.
PLUMB_CALLED double CalledEntropyTerm(double score, double sum) {
  return ScoreEntropyTerm(score, sum);
}

// `Slots`: experts per lane, at least ceil(E / 32).
template <typename Warp, typename Sink, int Slots>
class RowMeasure {
  template <typename T>
  using Var = typename Warp::template Var<T>;

 public:
  // `bias`: [E] or null. `values`: space for E doubles that all lanes share, used only with a group
  // limit. `longest`: as in RoutingRaw.
  PLUMB_DEVICE RowMeasure(const RoutingPlan& plan, const double* bias, double* values,
                          uint64_t longest, Sink* sink)
      : plan_(plan), longest_(longest), sink_(sink), own_(plan, bias, values) {}

  PLUMB_DEVICE RowMeans Measure(int64_t row) {
    padding_ = plan_.padding.present() && plan_.padding.Integer(row) != 0;
    own_.Choose(row);
    RowMeans means;
    if (padding_) {
      Count(&RoutingCounts::padding);
    } else {
      means = CountRow();
    }
    CountRecorded();
    return means;
  }

 private:
  PLUMB_DEVICE void Count(uint64_t RoutingCounts::*member, uint64_t n = 1) {
    Warp::Each([&](int l) {
      if (l == 0) sink_->Add(member, n);
    });
  }

  PLUMB_DEVICE RowMeans CountRow() {
    RowMeans means;
    if (!own_.scale().finite) {
      Count(&RoutingCounts::non_finite);
      return means;
    }
    Count(&RoutingCounts::finite);
    if (own_.tied()) Count(&RoutingCounts::tied);
    Warp::Each([&](int l) {
      if (l == 0) sink_->AbsMax(__builtin_bit_cast(uint64_t, own_.scale().abs_max));
    });
    if (own_.ranked() > 1) Count(&RoutingCounts::margin_rows);
    means.margin = own_.best_margin();
    double entropy;
    if (plan_.logits_known) {
      entropy = LogitEntropy(own_.scale());
      means.z = SquaredLogSum(own_.scale());
    } else {
      entropy = RowScoreEntropy();
    }
    if (plan_.rule.experts == 1 || !(entropy == entropy)) return means;
    Count(&RoutingCounts::entropy_rows);
    means.entropy = entropy / plan_.log_experts;
    return means;
  }

  // Equals ScoreEntropy (routing/row.h).
  PLUMB_DEVICE double RowScoreEntropy() {
    Var<double> sum;
    Var<double> negated;
    Warp::Each([&](int l) {
      sum[l] = 0;
      negated[l] = -__builtin_inf();
      PLUMB_UNROLL
      for (int s = 0; s < Slots; ++s) {
        if (s * kRowLanes + l >= plan_.rule.experts) continue;
        const double share = ShareOf(own_.score(s, l));
        sum[l] += share;
        negated[l] = -share > negated[l] ? -share : negated[l];
      }
    });
    const double total = Warp::Sum(sum);
    if (!Normalisable(-Warp::Max(negated), total)) return __builtin_nan("");
    Warp::Each([&](int l) {
      sum[l] = 0;
      PLUMB_UNROLL
      for (int s = 0; s < Slots; ++s) {
        if (s * kRowLanes + l < plan_.rule.experts)
          sum[l] += CalledEntropyTerm(ShareOf(own_.score(s, l)), total);
      }
    });
    return Warp::Sum(sum);
  }

  PLUMB_DEVICE void CountRecorded() {
    switch (plan_.recorded) {
      case RecordedChoice::kNone:
        return CountOwn();
      case RecordedChoice::kIndices:
        return CountIndices();
      case RecordedChoice::kMap:
        return CountMap();
    }
  }

  PLUMB_DEVICE void CountOwn() {
    if (!own_.scale().finite) return;
    Warp::Each([&](int l) {
      if (l < own_.count()) sink_->Load(own_.expert(l));
    });
    if (!padding_) CountChoices(own_.count());
  }

  // Lane j: recorded choice j.
  PLUMB_DEVICE void CountIndices() {
    Var<int32_t> expert;
    Var<bool> recorded;
    Warp::Each([&](int l) {
      expert[l] = -1;
      recorded[l] = false;
      if (l >= plan_.rule.top_k) return;
      const int64_t e = plan_.topk.Integer(own_.row(), l);
      if (e == -1) return;
      if (e < -1 || e >= plan_.rule.experts) {
        sink_->BadIndex(BadIndexKey(own_.row(), l, e));
        return;
      }
      expert[l] = static_cast<int32_t>(e);
      recorded[l] = true;
      if (KeptIndex(plan_, own_.row(), l, e)) {
        Keep(expert[l]);
      } else if (!padding_) {
        Refuse(expert[l]);
      }
    });
    if (padding_) return;
    const int n = BitsSet(Warp::Ballot(recorded));
    CountChoices(n);
    if (!Judged()) return;
    Var<bool> covered;
    Warp::Each([&](int l) { covered[l] = false; });
    for (int j = 0; j < plan_.rule.top_k; ++j) {
      const int32_t e = Warp::At(expert, j);
      Warp::Each([&](int l) {
        if (l < own_.count() && own_.expert(l) == e) covered[l] = true;
      });
    }
    if (n != own_.count() || BitsSet(Warp::Ballot(covered)) != own_.count())
      Count(&RoutingCounts::unexplained);
  }

  // Returns bit s if the map is not 0 at the lane's expert of slot s. Its dtype's width is tested
  // once.
  PLUMB_DEVICE uint32_t MapSlots(int l) const {
    switch (DTypeSize(plan_.map.dtype)) {
      case 1:
        return MapSlotsOf<uint8_t>(l);
      case 2:
        return MapSlotsOf<uint16_t>(l);
      case 4:
        return MapSlotsOf<uint32_t>(l);
      default:
        return MapSlotsOf<uint64_t>(l);
    }
  }
  template <typename Raw>
  PLUMB_DEVICE uint32_t MapSlotsOf(int l) const {
    const StridedView& map = plan_.map;
    uint32_t slots = 0;
    PLUMB_UNROLL
    for (int s = 0; s < Slots; ++s) {
      const int e = s * kRowLanes + l;
      if (e >= plan_.rule.experts) continue;
      if (LoadRaw<Raw>(map.data, own_.row() * map.row + e * map.column) != 0) slots |= 1u << s;
    }
    return slots;
  }

  PLUMB_DEVICE void CountMap() {
    Var<int> kept_here;
    Warp::Each([&](int l) {
      kept_here[l] = 0;
      for (uint32_t left = MapSlots(l); left != 0; left &= left - 1) {
        const int e = BitsSet(~left & (left - 1)) * kRowLanes + l;
        if (!HasProbability(plan_, own_.row(), e)) continue;
        ++kept_here[l];
        Keep(e);
      }
    });
    if (padding_) return;
    const int kept = Warp::Sum(kept_here);
    CountChoices(kept);
    if (!Judged()) return;
    Var<bool> covered;
    Warp::Each([&](int l) {
      covered[l] = l < own_.count() && KeptInMap(plan_, own_.row(), own_.expert(l));
    });
    if (BitsSet(Warp::Ballot(covered)) != kept) {
      Count(&RoutingCounts::unexplained);
      return;
    }
    CountChoices(own_.count() - kept);
    Warp::Each([&](int l) {
      if (l < own_.count() && !covered[l]) Refuse(own_.expert(l));
    });
  }

  PLUMB_DEVICE void Keep(int32_t expert) {
    sink_->Load(expert);
    if (plan_.fates_known) sink_->Fate(plan_, own_.row(), expert, true, padding_);
  }

  PLUMB_DEVICE void Refuse(int32_t expert) {
    if (plan_.fates_known) sink_->Fate(plan_, own_.row(), expert, false, false);
    sink_->Refused(expert);
    sink_->Add(&RoutingCounts::dropped, 1);
    const int bin = BinOfRow();
    if (bin >= 0) sink_->DropBin(bin);
  }

  PLUMB_DEVICE void CountChoices(int n) {
    if (n == 0) return;
    Warp::Each([&](int l) {
      if (l != 0) return;
      sink_->Add(&RoutingCounts::choices, static_cast<uint64_t>(n));
      const int bin = BinOfRow();
      if (bin >= 0) sink_->OfferBin(bin, static_cast<uint64_t>(n));
    });
  }

  // Returns -1 without a valid position; bad_position reports invalid ones.
  PLUMB_DEVICE int BinOfRow() const {
    if (!plan_.position.present()) return -1;
    const int64_t p = plan_.position.Integer(own_.row());
    return p < 0 || p >= kMaxPosition ? -1 : DropBin(p, longest_);
  }

  PLUMB_DEVICE bool Judged() const { return own_.scale().finite && !own_.tied(); }

  const RoutingPlan& plan_;
  uint64_t longest_;
  Sink* sink_;

  bool padding_ = false;
  RowChoice<Warp, Slots> own_;
};

// Calls f(std::integral_constant-like tag) with the number of slots that E experts need.
template <int N>
struct SlotCount {
  static constexpr int value = N;
};
template <typename F>
inline void WithSlots(int experts, F f) {
  if (experts <= 32) return f(SlotCount<1>{});
  if (experts <= 64) return f(SlotCount<2>{});
  if (experts <= 128) return f(SlotCount<4>{});
  if (experts <= 256) return f(SlotCount<8>{});
  f(SlotCount<16>{});
}

}  // namespace plumbline
