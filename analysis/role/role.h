// The role of a series of scalars, which follows from its name: the loss, a gradient norm, the
// learning rate, ... Rules use roles, never names (specs: a series without a role is displayed and
// stored, but no rule judges it).
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
  kLoss,            // a training loss
  kEvaluationLoss,  // the name contains the word `val`, `eval`, `test`, `dev`, ...
  kAuxiliaryLoss,   // a term (load balancing, z loss, ...), or a side of a game (a critic, a
                    // generator)
  kGradientNorm,
  kRate,       // learning rate of a parameter group
  kLossScale,  // scale of mixed precision
  kTokens,
  kStepSeconds,
  kMemory,  // allocated or reserved memory, in bytes or as a share
  kUpdateRatio,
  // Known by whole names (role_names.h): the difference of trainer and engine,
  kMismatch,             // mean or max of |log π_trainer - log μ_engine|
  kMismatchProbability,  // difference of probabilities
  kMismatchKl,
  kMismatchFactor,  // mean e^|d|, near 1
  kMismatchChiSquare,
  kImportanceRatio,
  // a policy's metrics,
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

// Returns "loss", "evaluation-loss", "auxiliary-loss", "gradient-norm", "rate", "loss-scale",
// "tokens", "step-seconds", "memory", "update-ratio", "mismatch", ... as in docs/scalars.md; or
// "none".
const char* NameOf(SeriesRole role);
// Returns true for metrics of reinforcement learning that are computed in each step: a mismatch, an
// importance ratio, a KL, an entropy, a reward.
constexpr bool IsPolicyMetric(SeriesRole role) {
  return (role >= SeriesRole::kMismatch && role <= SeriesRole::kStepKl) ||
         role == SeriesRole::kReferenceKl || role == SeriesRole::kEntropy ||
         role == SeriesRole::kReward;
}
std::optional<SeriesRole> FindRole(std::string_view name);

// Returns the role by name. Case is ignored; `/ _ - . : space` are equal; a capital after a small
// letter begins a word.
SeriesRole RoleByName(std::string_view name);

// The side of a game, as in reinforcement learning and adversarial training. The loss of a side
// rises as other sides learn, and so may the sum of the losses.
enum class GameSide : uint8_t {
  kNone,
  kPolicy,  // auxiliary losses of a policy, a critic, ...
  kValue,
  kGenerator,
  kDiscriminator,
  kEpisodes,  // not a loss: the reward of an episode, or a metric of rollouts
  kScore,     // likewise, if it leaves [0, 1], which a share of right answers does not
  // Likewise, if it leaves [-20, 100], which neither a percentage nor a reward model does.
  kWideScore,
  kReference,  // not a loss: a KL to a reference, which autoencoders also log
};
GameSide SideByName(std::string_view name);
// Returns true for data on which the model is not trained: the name contains `val`, `eval`, `test`,
// ...
bool IsOfEvaluation(std::string_view name);
// Returns true for a loss that may be a part of another loss, by its name: L1, L2, boxes of a
// detector, the likelihood in preference training. If there is no other loss, it is the whole loss.
bool MayBePart(std::string_view name);
// Returns true for the loss of a detector's boxes ("box_loss", "dfl_loss").
bool IsLossOfBoxes(std::string_view name);
// Returns true for a loss that is lowest if the experts of a mixture get equal shares:
// "load_balancing_loss", "lb_loss", "router_aux_loss", and "aux_loss" of transformers. The balance
// of classes or of data is another one.
bool IsBalanceLoss(std::string_view name);
// Returns true for the training loss as a whole by its name: "loss", "total_loss". "sync_loss" may
// be a term that is switched on later.
bool IsWholeLoss(std::string_view name);
// Returns true for a metric of boosted trees by its name: "train-rmse", "valid_0's l2", "RMSE".
bool IsOfBooster(std::string_view name);

// Roles that the user assigned to names, which take precedence over the names. Immutable once rules
// use it.
class SeriesRoles {
 public:
  void Set(std::string name, SeriesRole role) { stated_[std::move(name)] = role; }
  SeriesRole Of(std::string_view name) const;
  bool empty() const { return stated_.empty(); }
  const std::map<std::string, SeriesRole, std::less<>>& stated() const { return stated_; }

 private:
  std::map<std::string, SeriesRole, std::less<>> stated_;
};

}  // namespace plumbline
