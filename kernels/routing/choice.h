// Computes the choice of a row's scores with a warp: expert i on lane i % 32. The result equals
// base/router/scores.h in every bit. A Warp is as in routing/core.h.
#pragma once

#include <cstdint>

#include "base/router/rule.h"
#include "kernels/core/device_code.h"
#include "kernels/routing/plan.h"

namespace plumbline {

// An expert offered for a rank: `key` orders, `x` is its recorded value.
struct RankCandidate {
  double key;
  double x;
  int32_t index;
};

// The order of ranks; the place for "no candidate" (index kNoExpert, key -inf) is last.
inline constexpr int32_t kNoExpert = 0x7fffffff;
PLUMB_HD inline bool RanksBefore(const RankCandidate& a, const RankCandidate& b) {
  return RanksBefore(a.key, a.index, b.key, b.index);
}

// The following functions are called, not inlined into each slot. Arguments are passed by value,
// because the state of a lane would be in memory if its address were taken.

// Returns the selection value of an expert from its recorded value.
PLUMB_CALLED double SelectionValue(const RouterRule& rule, double max, double sum, double x,
                                   double bias) {
  RowScale scale;
  scale.max = max;
  scale.sum = sum;
  const double f = ScoreOf(rule, scale, x);
  return rule.has_bias ? f + bias : f;
}

PLUMB_CALLED double SelectionTolerance(const RouterRule& rule, RowScale scale, double x,
                                       double bias) {
  return ToleranceOf(rule, scale, x, ScoreOf(rule, scale, x), bias);
}

// Returns a group's score, with its tolerance in `x` and its number. `values`: the selection values
// of the row.
PLUMB_CALLED RankCandidate ScoreGroup(const RoutingPlan& plan, RowScale scale, int64_t row,
                                      const double* bias, const double* values, int g) {
  const RouterRule& rule = plan.rule;
  const int size = rule.group_size();
  int first = g * size;
  int second = -1;
  for (int i = g * size + 1; i < (g + 1) * size; ++i) {
    if (values[i] > values[first]) {
      second = first;
      first = i;
    } else if (second < 0 || values[i] > values[second]) {
      second = i;
    }
  }
  const auto tolerance = [&](int i) {
    return SelectionTolerance(rule, scale, plan.scores.Number(row, i),
                              rule.has_bias ? bias[i] : 0.0);
  };
  RankCandidate group{values[first], tolerance(first), g};
  if (rule.group_score == GroupScore::kSum2 && second >= 0) {
    group.key += values[second];
    group.x += tolerance(second);
  }
  return group;
}

// `Slots`: experts per lane, at least ceil(E / 32).
template <typename Warp, int Slots>
class RowChoice {
  template <typename T>
  using Var = typename Warp::template Var<T>;

 public:
  // `bias`: [E] or null. `values`: space for E doubles that all lanes share, used only with a group
  // limit.
  PLUMB_DEVICE RowChoice(const RoutingPlan& plan, const double* bias, double* values)
      : plan_(plan), rule_(plan.rule), bias_(bias), values_(values) {}

  // Computes the choice of a row. Then the accessors describe this row; count() and the accessors
  // after it are valid if scale().finite.
  PLUMB_DEVICE void Choose(int64_t row) {
    row_ = row;
    Scan();
    if (scale_.finite) ChooseRanks();
  }

  PLUMB_DEVICE int64_t row() const { return row_; }
  // Returns the recorded score of the lane's expert in slot s.
  PLUMB_DEVICE double score(int s, int lane) const { return x_[s][lane]; }
  PLUMB_DEVICE const RowScale& scale() const { return scale_; }
  PLUMB_DEVICE int count() const { return count_; }    // chosen: top_k
  PLUMB_DEVICE int ranked() const { return ranked_; }  // count, or one more: see RouterChoice
  PLUMB_DEVICE int32_t expert(int lane) const { return rank_[lane].index; }  // of rank lane < count
  PLUMB_DEVICE bool tied() const { return tied_; }
  PLUMB_DEVICE double best_margin() const { return best_margin_; }  // first minus second

 private:
  // ---- scores ----

  // Fills x_. The dtype is tested once, so that a lane's loads are in flight together.
  PLUMB_DEVICE void LoadScores(int l) {
    switch (plan_.scores.dtype) {  // one of these: IsScoreDType
      case DType::kF64:
        return LoadSlots<DType::kF64>(l);
      case DType::kF32:
        return LoadSlots<DType::kF32>(l);
      case DType::kF16:
        return LoadSlots<DType::kF16>(l);
      default:
        return LoadSlots<DType::kBF16>(l);
    }
  }
  template <DType T>
  PLUMB_DEVICE void LoadSlots(int l) {
    const StridedView& scores = plan_.scores;
    PLUMB_UNROLL
    for (int s = 0; s < Slots; ++s) {
      const int i = s * kRowLanes + l;
      x_[s][l] =
          i < rule_.experts ? LoadDouble(scores.data, T, row_ * scores.row + i * scores.column) : 0;
    }
  }

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
      LoadScores(l);
      PLUMB_UNROLL
      for (int s = 0; s < Slots; ++s) {
        const double v = x_[s][l];
        if (s * kRowLanes + l >= rule_.experts) continue;
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

  PLUMB_DEVICE double Value(double x, int i) const {
    if (IsMasked(x)) return x;
    return SelectionValue(rule_, scale_.max, scale_.sum, x, Bias(i));
  }
  PLUMB_DEVICE double Tolerance(double x, int i) const {
    return SelectionTolerance(rule_, scale_, x, Bias(i));
  }

  // ---- choice ----

  PLUMB_DEVICE void ChooseRanks() {
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
      Warp::Each([&](int l) { open[l] = BitsSet(open_[l]); });
      scale_.candidates = Warp::Sum(open);
      scale_.finite = scale_.candidates >= rule_.top_k;
      if (!scale_.finite) return;
    }
    Rank();
    JudgeRanks(group_tied);
  }

  // Computes every selection value; returns false if one is not finite.
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
    return !Warp::Any(bad);  // also orders the writes to values_ before their reads
  }

  // Closes the experts of refused groups; returns true if the limit is tied.
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
        group[s][l] = ScoreGroup(plan_, scale_, row_, bias_, values_, g);
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

  // Returns the best candidate that `left` marks on any lane, and clears its mark.
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

  const RoutingPlan& plan_;
  const RouterRule& rule_;
  const double* bias_;
  double* values_;

  int64_t row_ = 0;
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

}  // namespace plumbline
