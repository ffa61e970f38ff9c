// What a gradient norm is judged with: the loss of the same rows, the spread of a policy's rewards,
// restarts of the rate, and customary clips. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "analysis/policy/policy.h"
#include "analysis/series/series.h"
#include "base/archive.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {

inline constexpr double kLossOfStartFell = 0.1;  // share of the first value
inline constexpr double kLossAtLowest =
    0.05;  // share of the fall within which a loss is at its lowest value
// A minimised loss is small, or equal for all batches. If it differs between batches, so do its
// gradients.
inline constexpr double kLossIsSmall = 1e-3;  // share of the first value
inline constexpr double kLossIsSteady =
    1e-3;  // share of the level: the spread of the newest nine values

// A training loss of the same processes: its first, lowest and current level, as medians of nine.
struct OtherLoss {
  std::deque<double> newest;
  double begin = NAN, lowest = HUGE_VAL, level = NAN;
  void Persist(Archive& a) { a(newest, begin, lowest, level); }

  void Take(double value) {
    constexpr size_t kNine = 9;
    if (!std::isfinite(value)) return;
    newest.push_back(value);
    if (newest.size() < kNine) return;
    if (newest.size() > kNine) newest.pop_front();
    std::array<double, kNine> values;
    std::copy(newest.begin(), newest.end(), values.begin());
    level = MedianOfNine(values);
    if (std::isnan(begin)) begin = level;
    lowest = std::min(lowest, level);
  }
  bool known() const { return std::isfinite(level); }
  bool at_its_minimum() const {
    const double fell = begin - lowest;
    const bool low = fell >= kLossOfStartFell * std::fabs(begin) && fell > 0 &&
                     level <= lowest + kLossAtLowest * fell;
    return low && (std::fabs(level) <= kLossIsSmall * std::fabs(begin) ||
                   spread() <= kLossIsSteady * std::fabs(level));
  }
  bool fell() const {
    return known() && begin > level && begin - level >= kLossOfStartFell * std::fabs(begin);
  }
  double spread() const {
    const auto [low, high] = std::minmax_element(newest.begin(), newest.end());
    return *high - *low;
  }
};

// What the rows show of a policy's training. If the rewards of each group are equal, the gradient
// of a row is 0.
struct PolicyRows {
  static constexpr uint64_t kFewest = 50;  // low norms in a row, if the spread is not recorded
  bool policy = false, spread_known = false, spreadless = false;
  int64_t step = 0;  // of the newest spread
  void Persist(Archive& a) { a(policy, spread_known, spreadless, step); }

  void Take(PolicyKind kind, int64_t at, double value) {
    policy = true;
    const bool share = kind == PolicyKind::kSpreadlessShare;
    const bool of_spread =
        share || kind == PolicyKind::kRewardSpread || kind == PolicyKind::kMixedShare;
    if (!of_spread || !std::isfinite(value)) return;
    if (!spread_known || at != step) spreadless = false;
    spread_known = true;
    step = at;
    spreadless = spreadless || (share ? value >= PolicySeries::kSpreadless : value == 0);
  }
};

// Detects rows whose groups have no spread of rewards: by a logged spread, or by mean rewards that
// all equal their lowest or highest value so far, as if each answer had the same reward.
struct PolicySpread {
  struct Extremes {
    double low = HUGE_VAL, high = -HUGE_VAL;
    bool at = false;  // the newest value equals an earlier extreme
    int64_t step = 0;
    void Persist(Archive& a) { a(low, high, at, step); }
  };
  PolicyRows rows;
  std::map<std::string, Extremes> rewards;  // by name
  void Persist(Archive& a) { a(rows, rewards); }

  void Take(PolicyKind kind, const std::string& op, int64_t step, double value) {
    rows.Take(kind, step, value);
    if (kind != PolicyKind::kReward || !std::isfinite(value)) return;
    Extremes& reward = rewards[op];
    reward.at = value == reward.low || value == reward.high;
    reward.step = step;
    reward.low = std::min(reward.low, value);
    reward.high = std::max(reward.high, value);
  }
  bool Lacks(int64_t step) const {
    if (rows.spread_known) return rows.spreadless && rows.step == step;
    return !rewards.empty() && std::all_of(rewards.begin(), rewards.end(), [&](const auto& any) {
      return any.second.at && any.second.step == step;
    });
  }
};

// Returns true for a difference of trainer and engine. Only a policy's training has it.
inline bool ComparesEngine(SeriesRole role) {
  return role >= SeriesRole::kMismatch && role <= SeriesRole::kImportanceRatio;
}
inline bool IsOfPolicy(PolicyKind kind) {
  return kind == PolicyKind::kReward || kind == PolicyKind::kRewardSpread ||
         kind == PolicyKind::kSpreadlessShare || kind == PolicyKind::kMixedShare ||
         kind == PolicyKind::kClipShare || kind == PolicyKind::kTruncatedShare;
}

// Returns the kind of a series that only a policy's training has, kOther for a mismatch, or kNone.
inline PolicyKind KindOfPolicyRow(std::string_view op, SeriesRole role) {
  if (ComparesEngine(role)) return PolicyKind::kOther;
  const PolicyKind kind = PolicyMetricOf(op, role).kind;
  return IsOfPolicy(kind) ? kind : PolicyKind::kNone;
}

// Detects a rate that falls and rises again.
struct RateTurns {
  double high = 0, low = 0;  // since the last restart
  void Persist(Archive& a) { a(high, low); }

  bool Take(double rate) {
    if (!std::isfinite(rate) || rate < 0) return false;
    const bool restarts = low <= 0.75 * high && rate >= 1.5 * low && rate > 0 && high > 0;
    if (restarts || rate > high) {
      high = low = rate;
      return restarts;
    }
    low = std::min(low, rate);
    return false;
  }
};

// Returns how an excursion of a norm ended.
inline std::string OutcomeOf(const Excursion& e) {
  switch (e.kind) {
    case ExcursionKind::kRecovered:
      return absl::StrFormat("it was back after step %d", e.last_step);
    case ExcursionKind::kLevelShift:
      return "it stayed at another level";
    case ExcursionKind::kDivergence:
      return "it grows";
    case ExcursionKind::kSpike:
      break;
  }
  return absl::StrFormat("it was last away in step %d", e.last_step);
}

// Customary limits of a clip by norm.
inline constexpr double kClips[] = {1, 0.5, 0.25, 0.1, 0.2, 0.3, 2, 5, 10, 0.05, 0.01};
inline constexpr double kSameNormDigits = 1e-5;  // five digits
inline constexpr double kLossScaleLeast = 256;   // loss scales are larger
inline constexpr double kClippedScaledMost = 10.0 / kLossScaleLeast;

// Returns the power of two if the norm is a customary clip divided by it, to five digits; else 0.
inline double ScaleUnderClip(double norm) {
  for (const double clip : kClips) {
    const double power = std::log2(clip / norm);
    const double whole = std::round(power);
    if (norm > 0 && std::exp2(whole) >= kLossScaleLeast &&
        std::fabs(power - whole) <= 2 * kSameNormDigits)
      return std::exp2(whole);
  }
  return 0;
}

// One gradient norm of health/gradient-vanish.
struct VanishingNorm {
  Standing standing;
  bool scaled = false;  // reported: gradients are clipped while they are still scaled
  uint64_t points = 0;
  uint64_t low = 0;         // newest consecutive points below the limit
  uint64_t spreadless = 0;  // number of rows whose groups have no spread of rewards
  bool reported = false;
  bool minimum = false;  // the norm was small while the loss was at its lowest
  int64_t step_first = 0, step_last = 0;
  void Persist(Archive& a) {
    a(standing, scaled, points, low, spreadless, reported, minimum, step_first, step_last);
  }

  bool always_zero() const {
    return points >= Standing::kTen && standing.highest() <= 0 && standing.newest_highest() <= 0;
  }
  // Returns the common value of all newest points, to five digits; 0 if they differ.
  double constant() const {
    if (standing.newest().size() < Standing::kTen) return 0;
    const double norm = standing.newest().back().value;
    const auto same = [&](const Standing::Point& point) {
      return std::fabs(point.value - norm) <= kSameNormDigits * norm;
    };
    const auto from = standing.newest().end() - static_cast<ptrdiff_t>(Standing::kTen);
    return std::all_of(from, standing.newest().end(), same) ? norm : 0;
  }

  // `value` is NaN if no rank has a finite value.
  void Take(int64_t step, double value) {
    step_last = std::max(step_last, step);
    if (!(std::isfinite(value) && value >= 0)) return;
    ++points;
    standing.Take(step, value);
  }
};

}  // namespace plumbline::rules
