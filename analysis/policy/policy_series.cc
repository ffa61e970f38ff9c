#include "analysis/policy/policy_series.h"

#include <cmath>
#include <numbers>

namespace plumbline::analysis {

bool PolicySeries::IsUndecided(double loss) {
  constexpr double kSameLoss = 5e-5;  // a log may print ln 2 as 0.6931
  return std::fabs(loss - std::numbers::ln2) < kSameLoss || std::fabs(loss - 0.5) < kSameLoss;
}

bool PolicySeries::Take(PolicyKind kind, int64_t step, double value) {
  if (points_++ == 0) first_ = step, begin_ = value;
  since_ += found_ ? 1 : 0;
  newest_ = value;
  const auto in_row = [&](bool holds) { return row_.Take(holds, step, kTenPoints); };
  switch (kind) {
    case PolicyKind::kReward: {
      const bool fell = reward_.Take(step, value);
      // A run of equal points begins with the first of them.
      if (reward_.equal() == 1) row_.first = step;
      collapsed_ = collapsed_ || (fell && !found_);
      if (fell && collapsed_) return Begin(true, reward_.fall().onset()) || found_;
      return Begin(reward_.equal() == kConstantReward, row_.first);
    }
    case PolicyKind::kSpreadlessShare:
      return Begin(Spreadless(value >= kSpreadless, step), row_.first);
    case PolicyKind::kMixedShare:
    case PolicyKind::kRewardSpread:
      return Begin(Spreadless(value == 0, step), row_.first);
    case PolicyKind::kClipShare:
      return Begin(in_row(value > kMostClipped), row_.first);
    case PolicyKind::kTruncatedShare: {
      const bool begins = Truncated(step, value);
      return Begin(begins, row_.first);
    }
    case PolicyKind::kMargin: {
      in_row(value == 0);
      const bool below = Below(value < 0, step);
      return Begin(below && std::fabs(begin_) <= kMarginOfStart * std::fabs(value), below_.first);
    }
    case PolicyKind::kPairAccuracy: {
      const bool below = Below(value < 0.5, step);
      return Begin(below, below_.first);
    }
    case PolicyKind::kStaleness: {
      const bool grows = staleness_.Take(step, value);
      return Begin(grows, staleness_.onset());
    }
    case PolicyKind::kEntropy: {
      const bool collapsed = entropy_.Take(step, value);
      return Begin(collapsed, entropy_.onset());
    }
    case PolicyKind::kReferenceKl: {
      const bool grows = reference_.Take(step, value);
      constant_ =
          constant_ || (points_ == ReferenceCourse::kFewestZero && reference_.always_zero());
      negative_ = negative_ || (!found_ && !grows && !constant_ && reference_.negative());
      return Begin(grows || constant_ || negative_, constant_   ? first_
                                                    : negative_ ? reference_.negative_since()
                                                                : reference_.onset());
    }
    case PolicyKind::kPreferenceLoss: {
      const bool at = in_row(IsUndecided(value));
      constant_ = constant_ || (at && row_.count == points_);
      return Begin(at && row_.count == points_, first_);
    }
    default:
      return false;
  }
}

// Returns true if the points without spread in a row are ten or more, and more than chance gives in
// as many points, by the share of such points before.
bool PolicySeries::Spreadless(bool holds, int64_t step) {
  if (!holds) earlier_ += row_.count;
  row_.Take(holds, step, 0);
  if (!holds || row_.count < kTenPoints) return false;
  const auto before = static_cast<double>(points_ - row_.count);
  if (before == 0) return true;
  const double share = (static_cast<double>(earlier_) + 0.5) / (before + 1);
  const double chance = std::pow(share, static_cast<double>(row_.count));
  return static_cast<double>(points_) * chance < kChance;
}

bool PolicySeries::Truncated(int64_t step, double value) {
  ended_ += value < kFewTruncated ? 1 : 0;
  counts_ = counts_ || value > 1;  // the value is a number of episodes
  const bool most = row_.Take(value >= kMostTruncated, step, kTenPoints);
  all_truncated_ += value >= kAllTruncated && all_truncated_ + 1 == points_ ? 1 : 0;
  if (from_the_first_ && ended_ >= kTenPoints / 2) found_ = from_the_first_ = false;  // it ended
  if (points_ == kFromTheFirst && all_truncated_ == points_ && !counts_) {
    from_the_first_ = true;
    return true;
  }
  return most && ended_ >= kTenPoints / 2 && !counts_;
}

// Returns true if points in a row are below one half (or a margin of 0) more often than those of a
// coin are in as many points.
bool PolicySeries::Below(bool holds, int64_t step) {
  below_.Take(holds, step, 0);
  const double chance = std::pow(0.5, static_cast<double>(below_.count));
  return holds && static_cast<double>(points_) * chance < kChance;
}

bool PolicySeries::Begin(bool begins, int64_t onset) {
  if (!begins || found_) return false;
  found_ = true;
  onset_ = onset;
  measured_ = newest_;
  below_at_ = below_.count;
  return true;
}

}  // namespace plumbline::analysis
