// One row of the routing measurement as a warp does it: 32 lanes, expert i on lane i % 32.
//
// A template over the warp, so that the same text is the device kernel (routing.cu) and, with 32
// emulated lanes, a host program that tests compare with the host twin: same integers, same bits
// of the means. A Warp has
//   Var<T>             one T a lane, v[lane]
//   Each(f)            f(lane) for every lane this thread stands for (a device thread: its own)
//   Sum, Max, Any, Ballot, Best, At(v, lane)    the same result on every lane; sums as a butterfly
// and a Sink takes counts:
//   Add(&RoutingCounts::member)  AbsMax(bits)  Load(e)  Refused(e)  DropBin(bin)  OfferBin(bin, n)
//   BadIndex(key)
//   Fate(plan, row, e, kept, padding)    of choices whose fate is recorded: see CountFate
// once per event, from whichever lane saw it; Leader(lane) picks one lane for uniform events.
#pragma once

#include <cstdint>

#include "base/router_scores.h"
#include "kernels/device_code.h"
#include "kernels/routing_plan.h"
#include "kernels/routing_pools.h"
#include "kernels/routing_row.h"

namespace plumbline {

// An expert offered for a rank: `key` orders, `x` is the recorded value behind it.
struct RankCandidate {
  double key;
  double x;
  int32_t index;
};

// The order of ranks; no candidate (index kNoExpert, key -inf) comes last.
inline constexpr int32_t kNoExpert = 0x7fffffff;
PLUMB_HD inline bool RanksBefore(const RankCandidate& a, const RankCandidate& b) {
  return RanksBefore(a.key, a.index, b.key, b.index);
}

// Means of a row; 0 and false where a row has none.
struct RowMeans {
  double entropy = 0;
  double margin = 0;
  double z = 0;
};

// `Slots`: experts a lane holds, at least ceil(E / 32).
template <typename Warp, typename Sink, int Slots>
class RowMeasure {
  template <typename T>
  using Var = typename Warp::template Var<T>;

 public:
  // `bias`: [E] or null. `values`: room for E doubles that all lanes share, used with a group limit
  // only. `longest`: as in RoutingRaw.
  PLUMB_DEVICE RowMeasure(const RoutingPlan& plan, const double* bias, double* values,
                          uint64_t longest, Sink* sink)
      : plan_(plan),
        rule_(plan.rule),
        bias_(bias),
        values_(values),
        longest_(longest),
        sink_(sink) {}

  PLUMB_DEVICE RowMeans Measure(int64_t row) {
    row_ = row;
    padding_ = plan_.padding.present() && plan_.padding.Integer(row) != 0;
    Scan();
    if (scale_.finite) Choose();
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
  // ---- scores ----

  PLUMB_DEVICE void Scan() {
    Var<bool> bad;
    Var<int> open;
    Var<double> max;
    Var<double> abs_max;
    Warp::Each([&](int l) {
      bad[l] = false;
      open[l] = 0;
      max[l] = -__builtin_inf();
      abs_max[l] = 0;
      PLUMB_UNROLL
      for (int s = 0; s < Slots; ++s) {
        const int i = s * kRowLanes + l;
        const double v = i < rule_.experts ? plan_.scores.Number(row_, i) : 0;
        x_[s][l] = v;
        if (i >= rule_.experts) continue;
        bad[l] = bad[l] || IsPoison(v);
        if (IsMasked(v)) continue;
        ++open[l];
        max[l] = v > max[l] ? v : max[l];
        abs_max[l] = AbsValue(v) > abs_max[l] ? AbsValue(v) : abs_max[l];
      }
    });
    scale_ = RowScale{};
    scale_.candidates = Warp::Sum(open);
    scale_.finite = !Warp::Any(bad) && scale_.candidates >= rule_.top_k;
    if (!scale_.finite) return;
    scale_.max = Warp::Max(max);
    scale_.abs_max = Warp::Max(abs_max);
    scale_.max_delta = RecordedDelta(scale_.abs_max, rule_.dtype);
    Var<double> sum;
    Var<double> weighted;
    Warp::Each([&](int l) {
      sum[l] = 0;
      weighted[l] = 0;
      PLUMB_UNROLL
      for (int s = 0; s < Slots; ++s) {
        if (s * kRowLanes + l >= rule_.experts) continue;
        const double below = BelowMax(x_[s][l], scale_.max);
        const double e = PortableExp(below);
        sum[l] += e;
        weighted[l] += e * below;
      }
    });
    scale_.sum = Warp::Sum(sum);
    scale_.weighted = Warp::Sum(weighted);
  }

  PLUMB_DEVICE double Bias(int i) const { return rule_.has_bias ? bias_[i] : 0.0; }

  // Selection value of an expert from its recorded value.
  PLUMB_DEVICE double Value(double x, int i) const {
    if (IsMasked(x)) return x;
    const double f = ScoreOf(rule_, scale_, x);
    return rule_.has_bias ? f + bias_[i] : f;
  }
  PLUMB_DEVICE double Tolerance(double x, int i) const {
    return ToleranceOf(rule_, scale_, x, ScoreOf(rule_, scale_, x), Bias(i));
  }

  // ---- choice ----

  PLUMB_DEVICE void Choose() {
    bool group_tied = false;
    if (rule_.ranks_recorded()) {
      Warp::Each([&](int l) {
        PLUMB_UNROLL
        for (int s = 0; s < Slots; ++s) key_[s][l] = x_[s][l];
      });
    } else if (!FillValues()) {
      scale_.finite = false;
      return;
    }
    Warp::Each([&](int l) {
      open_[l] = 0;
      PLUMB_UNROLL
      for (int s = 0; s < Slots; ++s) {
        if (s * kRowLanes + l < rule_.experts && !IsMasked(x_[s][l])) open_[l] |= 1u << s;
      }
    });
    if (rule_.limited()) {
      group_tied = LimitGroups();
      Var<int> open;
      Warp::Each([&](int l) { open[l] = Bits(open_[l]); });
      scale_.candidates = Warp::Sum(open);
      scale_.finite = scale_.candidates >= rule_.top_k;
      if (!scale_.finite) return;
    }
    Rank();
    JudgeRanks(group_tied);
  }

  // Every selection value; false when one is not finite.
  PLUMB_DEVICE bool FillValues() {
    Var<bool> bad;
    Warp::Each([&](int l) {
      bad[l] = false;
      PLUMB_UNROLL
      for (int s = 0; s < Slots; ++s) {
        const int i = s * kRowLanes + l;
        if (i >= rule_.experts) continue;
        key_[s][l] = Value(x_[s][l], i);
        bad[l] = bad[l] || (!IsMasked(x_[s][l]) && !IsFiniteValue(key_[s][l]));
        if (rule_.limited()) values_[i] = key_[s][l];
      }
    });
    return !Warp::Any(bad);  // also orders the writes to values_ before what reads them
  }

  // A group's score, its tolerance in `x` and its number, from the shared values.
  PLUMB_DEVICE RankCandidate ScoreGroup(int g) const {
    const int size = rule_.group_size();
    int first = g * size;
    int second = -1;
    for (int i = g * size + 1; i < (g + 1) * size; ++i) {
      if (values_[i] > values_[first]) {
        second = first;
        first = i;
      } else if (second < 0 || values_[i] > values_[second]) {
        second = i;
      }
    }
    RankCandidate group{values_[first], Tolerance(plan_.scores.Number(row_, first), first), g};
    if (rule_.group_score == GroupScore::kSum2 && second >= 0) {
      group.key += values_[second];
      group.x += Tolerance(plan_.scores.Number(row_, second), second);
    }
    return group;
  }

  // Closes the experts of refused groups; true when the limit is tied.
  PLUMB_DEVICE bool LimitGroups() {
    Var<RankCandidate> group[Slots];
    Var<uint32_t> left;
    uint32_t admitted[Slots];
    Warp::Each([&](int l) {
      left[l] = 0;
      PLUMB_UNROLL
      for (int s = 0; s < Slots; ++s) {
        const int g = s * kRowLanes + l;
        if (g >= rule_.groups) continue;
        group[s][l] = ScoreGroup(g);
        left[l] |= 1u << s;
      }
    });
    PLUMB_UNROLL
    for (int s = 0; s < Slots; ++s) admitted[s] = 0;
    RankCandidate last{};
    for (int n = 0; n < rule_.top_groups; ++n) {
      last = TakeBest(group, &left);
      PLUMB_UNROLL
      for (int s = 0; s < Slots; ++s) {
        if (last.index / kRowLanes == s) admitted[s] |= 1u << (last.index % kRowLanes);
      }
    }
    const RankCandidate refused = TakeBest(group, &left);
    Warp::Each([&](int l) {
      const int size = rule_.group_size();
      PLUMB_UNROLL
      for (int s = 0; s < Slots; ++s) {
        const int g = (s * kRowLanes + l) / size;
        bool in = false;
        PLUMB_UNROLL
        for (int w = 0; w < Slots; ++w) {
          if (g / kRowLanes == w) in = (admitted[w] >> (g % kRowLanes) & 1u) != 0;
        }
        if (!in) open_[l] &= ~(1u << s);
      }
    });
    return WithinTolerance(last.key - refused.key, last.x, refused.x);
  }

  // The best of what `left` marks on every lane, unmarked.
  PLUMB_DEVICE RankCandidate TakeBest(Var<RankCandidate> (&offered)[Slots], Var<uint32_t>* left) {
    Var<RankCandidate> best;
    Warp::Each([&](int l) {
      best[l] = {-__builtin_inf(), 0, kNoExpert};
      PLUMB_UNROLL
      for (int s = 0; s < Slots; ++s) {
        if (((*left)[l] >> s & 1u) != 0 && RanksBefore(offered[s][l], best[l])) {
          best[l] = offered[s][l];
        }
      }
    });
    return Take(Warp::Best(best), left);
  }

  PLUMB_DEVICE RankCandidate Take(const RankCandidate& taken, Var<uint32_t>* left) {
    Warp::Each([&](int l) {
      if (taken.index % kRowLanes == l) (*left)[l] &= ~(1u << (taken.index / kRowLanes));
    });
    return taken;
  }

  // Fills rank n's expert on lane n; the first that is not chosen goes to next_.
  PLUMB_DEVICE void Rank() {
    count_ = rule_.top_k;
    ranked_ = rule_.top_k < scale_.candidates ? rule_.top_k + 1 : rule_.top_k;
    for (int n = 0; n < ranked_; ++n) {
      Var<RankCandidate> best;
      Warp::Each([&](int l) {
        best[l] = {-__builtin_inf(), 0, kNoExpert};
        PLUMB_UNROLL
        for (int s = 0; s < Slots; ++s) {
          const RankCandidate c{key_[s][l], x_[s][l], s * kRowLanes + l};
          if ((open_[l] >> s & 1u) != 0 && RanksBefore(c, best[l])) best[l] = c;
        }
      });
      const RankCandidate taken = Take(Warp::Best(best), &open_);
      if (n == count_) {
        next_ = taken;
      } else {
        Warp::Each([&](int l) {
          if (l == n) rank_[l] = taken;
        });
      }
    }
  }

  PLUMB_DEVICE void JudgeRanks(bool group_tied) {
    Var<double> value;
    Warp::Each([&](int l) { value[l] = l < count_ ? Value(rank_[l].x, rank_[l].index) : 0; });
    tied_ = group_tied;
    best_margin_ = 0;
    if (ranked_ > count_) {
      const RankCandidate last = Warp::At(rank_, count_ - 1);
      const double next_value = Value(next_.x, next_.index);
      const double margin = Warp::At(value, count_ - 1) - next_value;
      if (WithinTolerance(margin, Tolerance(last.x, last.index), Tolerance(next_.x, next_.index))) {
        tied_ = true;
      }
      if (count_ == 1) best_margin_ = margin;
    }
    if (count_ > 1) best_margin_ = Warp::At(value, 0) - Warp::At(value, 1);
  }

  // ---- counts ----

  PLUMB_DEVICE void Count(uint64_t RoutingCounts::*member, uint64_t n = 1) {
    Warp::Each([&](int l) {
      if (l == 0) sink_->Add(member, n);
    });
  }

  PLUMB_DEVICE RowMeans CountRow() {
    RowMeans means;
    if (!scale_.finite) {
      Count(&RoutingCounts::non_finite);
      return means;
    }
    Count(&RoutingCounts::finite);
    if (tied_) Count(&RoutingCounts::tied);
    Warp::Each([&](int l) {
      if (l == 0) sink_->AbsMax(__builtin_bit_cast(uint64_t, scale_.abs_max));
    });
    if (ranked_ > 1) Count(&RoutingCounts::margin_rows);
    means.margin = best_margin_;
    double entropy;
    if (plan_.logits_known) {
      entropy = LogitEntropy(scale_);
      means.z = SquaredLogSum(scale_);
    } else {
      entropy = RowScoreEntropy();
    }
    if (rule_.experts == 1 || !(entropy == entropy)) return means;
    Count(&RoutingCounts::entropy_rows);
    means.entropy = entropy / plan_.log_experts;
    return means;
  }

  // As ScoreEntropy (routing_row.h).
  PLUMB_DEVICE double RowScoreEntropy() {
    Var<double> sum;
    Var<double> negated;
    Warp::Each([&](int l) {
      sum[l] = 0;
      negated[l] = -__builtin_inf();
      PLUMB_UNROLL
      for (int s = 0; s < Slots; ++s) {
        if (s * kRowLanes + l >= rule_.experts) continue;
        const double share = ShareOf(x_[s][l]);
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
        if (s * kRowLanes + l < rule_.experts) sum[l] += ScoreEntropyTerm(ShareOf(x_[s][l]), total);
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
    if (!scale_.finite) return;
    Warp::Each([&](int l) {
      if (l < count_) sink_->Load(rank_[l].index);
    });
    if (!padding_) CountChoices(count_);
  }

  // Lane j: recorded choice j.
  PLUMB_DEVICE void CountIndices() {
    Var<int32_t> expert;
    Var<bool> recorded;
    Warp::Each([&](int l) {
      expert[l] = -1;
      recorded[l] = false;
      if (l >= rule_.top_k) return;
      const int64_t e = plan_.topk.Integer(row_, l);
      if (e == -1) return;
      if (e < -1 || e >= rule_.experts) {
        sink_->BadIndex(BadIndexKey(row_, l, e));
        return;
      }
      expert[l] = static_cast<int32_t>(e);
      recorded[l] = true;
      if (KeptIndex(plan_, row_, l, e)) {
        Keep(expert[l]);
      } else if (!padding_) {
        Refuse(expert[l]);
      }
    });
    if (padding_) return;
    const int n = Bits(Warp::Ballot(recorded));
    CountChoices(n);
    if (!Judged()) return;
    Var<bool> covered;
    Warp::Each([&](int l) { covered[l] = false; });
    for (int j = 0; j < rule_.top_k; ++j) {
      const int32_t e = Warp::At(expert, j);
      Warp::Each([&](int l) {
        if (l < count_ && rank_[l].index == e) covered[l] = true;
      });
    }
    if (n != count_ || Bits(Warp::Ballot(covered)) != count_) Count(&RoutingCounts::unexplained);
  }

  PLUMB_DEVICE void CountMap() {
    Var<int> kept_here;
    Warp::Each([&](int l) {
      kept_here[l] = 0;
      PLUMB_UNROLL
      for (int s = 0; s < Slots; ++s) {
        const int e = s * kRowLanes + l;
        if (e >= rule_.experts || !KeptInMap(plan_, row_, e)) continue;
        ++kept_here[l];
        Keep(e);
      }
    });
    if (padding_) return;
    const int kept = Warp::Sum(kept_here);
    CountChoices(kept);
    if (!Judged()) return;
    Var<bool> covered;
    Warp::Each([&](int l) { covered[l] = l < count_ && KeptInMap(plan_, row_, rank_[l].index); });
    if (Bits(Warp::Ballot(covered)) != kept) {
      Count(&RoutingCounts::unexplained);
      return;
    }
    CountChoices(count_ - kept);
    Warp::Each([&](int l) {
      if (l < count_ && !covered[l]) Refuse(rank_[l].index);
    });
  }

  PLUMB_DEVICE void Keep(int32_t expert) {
    sink_->Load(expert);
    if (plan_.fates_known) sink_->Fate(plan_, row_, expert, true, padding_);
  }

  PLUMB_DEVICE void Refuse(int32_t expert) {
    if (plan_.fates_known) sink_->Fate(plan_, row_, expert, false, false);
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

  // -1 without a position that can be told; bad_position reports those.
  PLUMB_DEVICE int BinOfRow() const {
    if (!plan_.position.present()) return -1;
    const int64_t p = plan_.position.Integer(row_);
    return p < 0 || p >= kMaxPosition ? -1 : DropBin(p, longest_);
  }

  PLUMB_DEVICE bool Judged() const { return scale_.finite && !tied_; }
  PLUMB_DEVICE static int Bits(uint32_t word) {
#if defined(__CUDA_ARCH__)
    return __popc(word);
#else
    return __builtin_popcount(word);
#endif
  }

  const RoutingPlan& plan_;
  const RouterRule& rule_;
  const double* bias_;
  double* values_;
  uint64_t longest_;
  Sink* sink_;

  int64_t row_ = 0;
  bool padding_ = false;
  RowScale scale_;
  Var<double> x_[Slots];
  Var<double> key_[Slots];
  Var<uint32_t> open_;  // bit s: the lane's expert of slot s may still be chosen
  Var<RankCandidate> rank_;
  RankCandidate next_{};
  int count_ = 0;
  int ranked_ = 0;
  bool tied_ = false;
  double best_margin_ = 0;
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
