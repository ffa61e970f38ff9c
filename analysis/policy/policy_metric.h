// What a series of reinforcement learning measures, by its role and name.
#pragma once

#include <cstdint>
#include <string_view>

#include "analysis/role/role.h"

namespace plumbline::analysis {

enum class PolicyKind : uint8_t {
  kNone,
  kMismatch,         // a distance of trainer and engine: see PolicyMetric
  kReward,           // a mean
  kRewardSpread,     // a standard deviation within groups
  kSpreadlessShare,  // the share of groups whose rewards are equal
  kEntropy,
  kReferenceKl,
  kClipShare,
  kTruncatedShare,  // answers that end at the longest length
  kMargin,          // preference training: the margin of the chosen answer
  kPreferenceLoss,
  kKlCoefficient,
  kOther,  // shows that the run trains a policy
};

// How the distance from agreement follows from a value.
enum class MismatchScale : uint8_t {
  kAbsolute,  // |value|
  kFactor,    // |value - 1|: a mean of e^|d|
  kLogRatio,  // |ln value|: a mean importance weight, which is 1 in expectation
  kShare,     // 1 - value: a correlation
  kSample,    // 1 / value: an effective sample size
};

struct PolicyMetric {
  PolicyKind kind = PolicyKind::kNone;
  // Of a mismatch:
  MismatchScale scale = MismatchScale::kAbsolute;
  double limit = 0;         // of the distance; 0: only the series' own past is a measure
  double floor = 0;         // a distance below it is harmless, however far above the past
  const char* source = "";  // of the limit
  // Returns the distance from agreement: 0 or more; NaN if the value is NaN; infinite if all tokens
  // were masked.
  double Distance(double value) const;
};

// Returns true for the reward of one function of several (`rewards/format_reward/mean`).
bool IsPartOfReward(std::string_view op);
// Returns true for the reward of an episode of a game, which may fall in classical control.
bool IsRewardOfEpisodes(std::string_view op);

// Returns the kind and limit of a series with that name and role. Sources: specs/rl_metrics.md,
// verl's documentation, slime's and NeMo-RL's tests.
PolicyMetric PolicyMetricOf(std::string_view op, SeriesRole role);

}  // namespace plumbline::analysis
