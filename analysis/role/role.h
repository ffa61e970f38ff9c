// What a series of scalars is, by its name: the loss, a gradient norm, the learning rate, ... Rules
// ask for roles, never for names (specs: a series without a role is shown and stored, and judged by
// no rule).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/role/memory_name.h"  // IWYU pragma: export

namespace plumbline {

enum class SeriesRole : uint8_t {
  kNone,
  kLoss,            // of training
  kEvaluationLoss,  // `val`, `eval`, `test`, `dev`, ... is a word of the name
  kAuxiliaryLoss,   // load balancing, z loss, ...: a term; a critic, a generator: a side of a game
  kGradientNorm,
  kRate,       // learning rate of a parameter group
  kLossScale,  // of mixed precision
  kTokens,
  kStepSeconds,
  kMemory,  // bytes or a share, allocated or reserved
  kUpdateRatio,
  // Known by whole names (role_names.h): what trainer and engine differ by,
  kMismatch,             // mean or max of |log π_trainer - log μ_engine|
  kMismatchProbability,  // difference of probabilities
  kMismatchKl,
  kMismatchFactor,  // mean e^|d|, near 1
  kMismatchChiSquare,
  kImportanceRatio,
  // what a policy does,
  kStepKl,
  kClipShare,
  kReferenceKl,
  kEntropy,
  kReward,
  kRewardSpread,
  kResponseLength,
  kTruncatedShare,
  kStaleness,
  // experts, skipped steps and speed.
  kExpertLoad,
  kDropRate,
  kRouterEntropy,
  kSkippedSteps,
  kNanCount,
  kTokensPerSecond,
  kUtilisation,  // MFU
  kAccuracy,
  kPerplexity,
  kLikelihood,  // rises as a model learns
  kLast = kLikelihood,
};

// "loss", "evaluation-loss", "auxiliary-loss", "gradient-norm", "rate", "loss-scale", "tokens",
// "step-seconds", "memory", "update-ratio", "mismatch", ... as in docs/scalars.md; "none".
const char* NameOf(SeriesRole role);
std::optional<SeriesRole> FindRole(std::string_view name);

// By name: any case; `/ _ - . : space` alike, and a capital behind a small letter begins a word.
SeriesRole RoleByName(std::string_view name);

// Who plays a game, as reinforcement learning and adversarial training are: the losses of all sides
// rise as others learn, and so does their sum.
enum class GameSide : uint8_t {
  kNone,
  kPolicy,  // auxiliary losses of a policy, a critic, ...
  kValue,
  kGenerator,
  kDiscriminator,
  kEpisodes,  // no loss: what an episode brought
  kScore,     // so too if it leaves [0, 1]: a share of right answers does not
};
GameSide SideByName(std::string_view name);
// Data that the model is not trained on: `val`, `eval`, `test`, ... is a word of the name.
bool IsOfEvaluation(std::string_view name);
// A loss by its name that is but a part where there is another: L1, L2, boxes of a detector, the
// likelihood beside what prefers one answer to another.
bool MayBePart(std::string_view name);
// A metric of boosted trees by its name: "train-rmse", "valid_0's l2", "RMSE".
bool IsOfBooster(std::string_view name);

// What the user said of names, before what they say themselves. Immutable once rules have it.
class SeriesRoles {
 public:
  void Set(std::string name, SeriesRole role) { said_[std::move(name)] = role; }
  SeriesRole Of(std::string_view name) const;
  bool empty() const { return said_.empty(); }
  const std::map<std::string, SeriesRole, std::less<>>& said() const { return said_; }

 private:
  std::map<std::string, SeriesRole, std::less<>> said_;
};

}  // namespace plumbline
