// What a series of reinforcement learning measures, by its role and name.
#pragma once

#include <cstdint>
#include <string_view>

#include "analysis/role/role.h"

namespace plumbline::analysis {

enum class PolicyKind : uint8_t {
  kNone,
  kMismatch,         // a distance of trainer and engine: see PolicyMetric
  kReward,           // a mean reward
  kRewardSpread,     // a standard deviation within groups
  kSpreadlessShare,  // the share of groups whose rewards are equal
  kMixedShare,       // the share of groups whose rewards differ; other runs may log such a name
  kEntropy,
  kReferenceKl,
  kClipShare,
  kTruncatedShare,  // answers that end at the longest length
  kMargin,          // the margin of the chosen answer, in preference training
  kPairAccuracy,    // the share of pairs whose chosen answer has the higher reward
  kPreferenceLoss,
  kKlCoefficient,
  kStaleness,  // the age of samples, in versions or steps
  kOther,      // another metric that shows that the run trains a policy
};

// The function from a value to the distance from agreement.
enum class MismatchScale : uint8_t {
  kAbsolute,  // |value|
  kFactor,    // |value - 1|: a mean of e^|d|
  kLogRatio,  // |ln value|: a mean importance weight, which is 1 in expectation
  kShare,     // 1 - value: a correlation
  kSample,    // 1 / value: an effective sample size
};

struct PolicyMetric {
  PolicyKind kind = PolicyKind::kNone;
  // For kMismatch:
  MismatchScale scale = MismatchScale::kAbsolute;
  double limit = 0;         // limit of the distance; 0 if only the series' own past is a measure
  double floor = 0;         // a distance below it is harmless, also if far above the past
  const char* source = "";  // source of the limit
  // Returns the distance from agreement: 0 or more; NaN if the value is NaN; infinite if all tokens
  // were masked.
  double Distance(double value) const;
};

// Returns true for a metric that only the training of a policy has. A KL, an entropy or a loss
// alone may have another origin, such as a variational autoencoder.
inline bool ShowsPolicy(PolicyKind kind) {
  return kind == PolicyKind::kReward || kind == PolicyKind::kRewardSpread ||
         kind == PolicyKind::kSpreadlessShare || kind == PolicyKind::kClipShare ||
         kind == PolicyKind::kMargin || kind == PolicyKind::kPairAccuracy ||
         kind == PolicyKind::kTruncatedShare || kind == PolicyKind::kStaleness ||
         kind == PolicyKind::kOther;
}

// Returns true for the reward of one function of several (`rewards/format_reward/mean`,
// `reward/format`).
bool IsPartOfReward(std::string_view op);
// Returns true for the reward of an episode of a game, which may fall in classical control.
bool IsRewardOfEpisodes(std::string_view op);

// Returns true for a KL to the reference that a trainer also logs as 0 if it has no reference
// (NeMo-RL, OpenRLHF, AReaL). `shares` is true if the run logs a share of groups without spread, as
// TRL does, which logs no KL without a reference.
bool ZeroMayMeanNoReference(std::string_view op, bool shares);

// Returns the kind and limit of a series with that name and role. Sources: specs/rl_metrics.md,
// verl's documentation, slime's and NeMo-RL's tests.
PolicyMetric PolicyMetricOf(std::string_view op, SeriesRole role);

}  // namespace plumbline::analysis
