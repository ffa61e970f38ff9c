// Splits a name into words. The role follows from words that the name contains, and words that it
// does not contain.
#include "analysis/role/role.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "analysis/role/booster_name.h"
#include "analysis/role/loss_name.h"
#include "analysis/role/name_words.h"
#include "analysis/role/role_names.h"
#include "base/names/name_memo.h"

namespace plumbline {
namespace {

using Words = NameWords;

constexpr std::pair<SeriesRole, const char*> kNames[] = {
    {SeriesRole::kNone, "none"},
    {SeriesRole::kLoss, "loss"},
    {SeriesRole::kEvaluationLoss, "evaluation-loss"},
    {SeriesRole::kAuxiliaryLoss, "auxiliary-loss"},
    {SeriesRole::kGradientNorm, "gradient-norm"},
    {SeriesRole::kRate, "rate"},
    {SeriesRole::kLossScale, "loss-scale"},
    {SeriesRole::kTokens, "tokens"},
    {SeriesRole::kStepSeconds, "step-seconds"},
    {SeriesRole::kMemory, "memory"},
    {SeriesRole::kUpdateRatio, "update-ratio"},
    {SeriesRole::kMismatch, "mismatch"},
    {SeriesRole::kMismatchProbability, "mismatch-probability"},
    {SeriesRole::kMismatchKl, "mismatch-kl"},
    {SeriesRole::kMismatchFactor, "mismatch-factor"},
    {SeriesRole::kMismatchChiSquare, "mismatch-chi-square"},
    {SeriesRole::kImportanceRatio, "importance-ratio"},
    {SeriesRole::kStepKl, "step-kl"},
    {SeriesRole::kClipShare, "clip-share"},
    {SeriesRole::kReferenceKl, "reference-kl"},
    {SeriesRole::kEntropy, "entropy"},
    {SeriesRole::kReward, "reward"},
    {SeriesRole::kRewardSpread, "reward-spread"},
    {SeriesRole::kResponseLength, "response-length"},
    {SeriesRole::kTruncatedShare, "truncated-share"},
    {SeriesRole::kStaleness, "staleness"},
    {SeriesRole::kExpertLoad, "expert-load"},
    {SeriesRole::kDropRate, "drop-rate"},
    {SeriesRole::kRouterEntropy, "router-entropy"},
    {SeriesRole::kSkippedSteps, "skipped-steps"},
    {SeriesRole::kNanCount, "nan-count"},
    {SeriesRole::kTokensPerSecond, "tokens-per-second"},
    {SeriesRole::kUtilisation, "utilisation"},
    {SeriesRole::kAccuracy, "accuracy"},
    {SeriesRole::kPerplexity, "perplexity"},
    {SeriesRole::kLikelihood, "likelihood"},
};

// Words of a bound, a factor, or a setting of the scheduler.
constexpr std::string_view kNotTheRate[] = {
    "min",      "max",      "base",      "initial", "init",      "target", "final",  "end",
    "start",    "peak",     "warmup",    "scale",   "mult",      "ratio",  "factor", "decay",
    "weight",   "steps",    "step",      "epoch",   "find",      "finder", "range",  "gamma",
    "patience", "schedule", "scheduler", "scaler",  "multiplier"};

bool IsLossScale(const Words& words) {
  constexpr std::string_view kSettings[] = {"min",    "max",    "init",    "initial", "window",
                                            "factor", "growth", "backoff", "interval"};
  // Training loops log GradScaler's scale as `grad_scale`, `amp_scale`, `scaler/scale`, or only
  // `scale`.
  const bool alone = !words.empty() && words.back() == "scale" &&
                     (words.size() == 1 || (words.size() == 2 && words[0] == "train"));
  const bool is = InARow(words, "loss", "scale") || InARow(words, "loss", "scaling") ||
                  InARow(words, "grad", "scale") || InARow(words, "amp", "scale") ||
                  InARow(words, "scaler", "scale") || alone;
  return is && !HasAny(words, kSettings);
}

bool IsGradientNorm(const Words& words) {
  constexpr std::string_view kOther[] = {"clip",  "clipping", "clipped",   "max",   "min",
                                         "std",   "var",      "threshold", "ratio", "loss",
                                         "scale", "param",    "limit",     "coef",  "count"};
  const bool is = Has(words, "gnorm") || InARow(words, "grad", "norm") ||
                  InARow(words, "gradient", "norm") || InARow(words, "grads", "norm") ||
                  InARow(words, "gradients", "norm") || InARow(words, "total", "norm");
  const bool alone = words.size() == 1 && words[0] == "norm";  // as in llm.c
  return alone || (is && !HasAny(words, kOther));
}

bool IsRate(const Words& words) {
  // ESPnet's "optim0_lr0".
  const bool group = words.size() >= 2 && words.back().starts_with("lr") &&
                     words[words.size() - 2].starts_with("optim") &&
                     words.back().find_first_not_of("0123456789", 2) == std::string::npos;
  const bool is = Has(words, "lr") || group || InARow(words, "learning", "rate");
  return is && !HasAny(words, kNotTheRate);
}

// Returns true for "mean_reward", "eval/mean_reward". They may be of episodes, or of a reward
// model.
bool IsMeanReward(const Words& words) {
  constexpr std::string_view kWords[] = {"mean", "reward", "eval", "evaluation", "test"};
  return InARow(words, "mean", "reward") &&
         std::all_of(words.begin(), words.end(), [&](const std::string& word) {
           return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
         });
}

// Returns true for the reward of an episode or an answer, which indicates a game. Returns false for
// the rewards of a reward model (`mean_reward`) and of pairs (`rewards/chosen`), because the losses
// of these trainings must fall.
bool IsOfEpisodes(const Words& words) {
  constexpr std::string_view kEpisode[] = {"ep", "episode", "episodes", "episodic"};
  constexpr std::string_view kBrought[] = {"rew",    "reward",  "rewards", "ret",
                                           "return", "returns", "score",   "scores"};
  if (HasAny(words, kEpisode) && HasAny(words, kBrought)) return true;
  constexpr std::string_view kReward[] = {"rew",    "reward",  "rewards",
                                          "return", "returns", "epsilon"};
  constexpr std::string_view kAdjacent[] = {
      "avg",  "average", "mean",      "std",  "total", "cumulative", "running",    "discounted",
      "best", "train",   "env",       "test", "eval",  "evaluation", "evaluator",  "undiscounted",
      "rlhf", "critic",  "objective", "step", "iter",  "time",       "normalized", "agent"};
  const bool plain = std::all_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(std::begin(kReward), std::end(kReward), word) != std::end(kReward) ||
           std::find(std::begin(kAdjacent), std::end(kAdjacent), word) != std::end(kAdjacent);
  });
  return plain && HasAny(words, kReward) && !IsMeanReward(words);
}

// Returns the side for a score. "score" and "avg_score" are of a game or of answers. "eval/score"
// may also be of an evaluation, in percent.
GameSide ScoreSide(const Words& words) {
  constexpr std::string_view kWords[] = {"score", "scores", "avg",  "average",   "mean",
                                         "train", "test",   "eval", "evaluation"};
  const bool score =
      (Has(words, "score") || Has(words, "scores")) &&
      std::all_of(words.begin(), words.end(), [&](const std::string& word) {
        return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
      });
  if (IsMeanReward(words) || (score && HasAny(words, kEvaluations))) return GameSide::kWideScore;
  return score ? GameSide::kScore : GameSide::kNone;
}

bool IsTokens(const Words& words) {
  constexpr std::string_view kOther[] = {"per",        "sec",    "second", "seconds", "s",
                                         "throughput", "rate",   "time",   "loss",    "dropped",
                                         "max",        "length", "ratio",  "share",   "acc",
                                         "accuracy",   "error",  "chi2",   "prob",    "entropy"};
  return (Has(words, "tokens") || Has(words, "token")) && !HasAny(words, kOther);
}

bool IsStepSeconds(const Words& words) {
  constexpr std::string_view kSteps[] = {"step", "iteration", "iter", "batch"};
  constexpr std::string_view kTimes[] = {"seconds", "second", "secs",     "sec",
                                         "s",       "time",   "duration", "cost"};
  constexpr std::string_view kOther[] = {
      "ms",        "data",  "wait",   "forward", "backward", "optimizer",
      "remaining", "total", "tokens", "samples", "start",    "end",
      "timestamp", "loss",  "speed",  "per",     "reader"};
  return HasAny(words, kSteps) && HasAny(words, kTimes) && !HasAny(words, kOther);
}

bool IsMemory(const Words& words) {
  constexpr std::string_view kWords[] = {"memory", "mem", "vram"};
  constexpr std::string_view kOther[] = {"bandwidth", "loss", "clock", "time", "temperature"};
  return HasAny(words, kWords) && !HasAny(words, kOther);
}

bool IsUpdateRatio(const Words& words) {
  return (Has(words, "update") || Has(words, "updates")) && Has(words, "ratio");
}

}  // namespace

const char* NameOf(SeriesRole role) {
  for (const auto& [known, name] : kNames) {
    if (known == role) return name;
  }
  return "none";
}

std::optional<SeriesRole> FindRole(std::string_view name) {
  for (const auto& [role, known] : kNames) {
    if (name == known) return role;
  }
  return std::nullopt;
}

namespace {

bool IsPerplexity(const Words& words) {
  return (Has(words, "perplexity") || Has(words, "ppl")) && !HasAny(words, kNotTheValue);
}

// Returns true for a likelihood. If the name has the word "negative", it is a loss.
bool IsLikelihood(const Words& words) {
  constexpr std::string_view kWords[] = {"likelihood", "loglikelihood", "loglik", "elbo"};
  return HasAny(words, kWords) && !HasAny(words, kNotTheValue);
}
bool IsNegative(const Words& words) {
  return Has(words, "neg") || Has(words, "negative") || Has(words, "minus");
}

// Returns true for one of a list of losses, "Losses/[2]". Which of them is trained is not known.
bool IsOfList(std::string_view name) {
  return name.ends_with(']') && name.find("/[") != std::string_view::npos;
}

SeriesRole FindRole(std::string_view name, const Words& words) {
  if (const std::optional<SeriesRole> known = RoleInTable(name)) return *known;
  if (const std::optional<SeriesRole> booster = BoosterRole(name)) return *booster;
  if (name.starts_with("trained/")) return SeriesRole::kNone;  // run.watch's counts of parameters
  if (name.starts_with("batch_facts/")) return SeriesRole::kNone;   // counts of batches
  if (name.starts_with("batch_digest/")) return SeriesRole::kNone;  // digests of batches
  if (name.starts_with("settings/")) return SeriesRole::kNone;      // settings of a trainer
  if (name.starts_with("logged/") || name.starts_with("measured/")) return SeriesRole::kNone;
  if (IsLossScale(words)) return SeriesRole::kLossScale;
  if (IsGradientNorm(words)) return SeriesRole::kGradientNorm;
  // Before the loss, because of "lm loss PPL".
  if (IsPerplexity(words)) return SeriesRole::kPerplexity;
  if (const SeriesRole loss = LossRoleOf(name, words); loss != SeriesRole::kNone)
    return loss == SeriesRole::kLoss && IsOfList(name) ? SeriesRole::kAuxiliaryLoss : loss;
  if (IsRate(words)) return SeriesRole::kRate;
  if (IsUpdateRatio(words)) return SeriesRole::kUpdateRatio;
  if (IsMemory(words)) return SeriesRole::kMemory;
  if (IsTokens(words)) return SeriesRole::kTokens;
  if (IsLikelihood(words) && !IsNegative(words)) return SeriesRole::kLikelihood;
  if (IsStepSeconds(words)) return SeriesRole::kStepSeconds;
  return SeriesRole::kNone;
}

// Returns true for metrics of answers: their rewards, their length. They show that answers are
// sampled, so the loss is that of a policy. Training with pairs, and of reward models, has no such
// metrics (IsOfEpisodes).
bool IsOfAnswers(SeriesRole role, const Words& words) {
  constexpr std::string_view kPairs[] = {"chosen", "rejected", "margin", "margins", "accuracies"};
  if (role == SeriesRole::kReward) return !IsMeanReward(words) && !HasAny(words, kPairs);
  const bool answers = Has(words, "completion") || Has(words, "completions") ||
                       Has(words, "response") || Has(words, "responses");
  return answers && (role == SeriesRole::kResponseLength || role == SeriesRole::kTruncatedShare);
}

struct Meaning {
  SeriesRole role = SeriesRole::kNone;
  GameSide side = GameSide::kNone;
  bool part = false;
  bool whole = false;
  bool evaluation = false;
  bool boxes = false;
};

Meaning FindMeaning(std::string_view name) {
  if (name.starts_with("data/")) name.remove_prefix(5);  // DLLogger's object of values
  const Words words = WordsOfName(name);
  Meaning meaning{FindRole(name, words)};
  if (meaning.role == SeriesRole::kAuxiliaryLoss) meaning.side = GameSideOf(name, words);
  const bool reward =
      meaning.role == SeriesRole::kReward || meaning.role == SeriesRole::kRewardSpread;
  if ((reward || meaning.role == SeriesRole::kNone) && IsOfEpisodes(words))
    meaning.side = GameSide::kEpisodes;
  if (IsOfAnswers(meaning.role, words)) meaning.side = GameSide::kEpisodes;
  if (meaning.role == SeriesRole::kReferenceKl) meaning.side = GameSide::kReference;
  // Only a trainer with rollouts logs these roles.
  if (meaning.role >= SeriesRole::kMismatch && meaning.role <= SeriesRole::kClipShare)
    meaning.side = GameSide::kEpisodes;
  if (meaning.side == GameSide::kNone && (reward || meaning.role == SeriesRole::kNone))
    meaning.side = ScoreSide(words);
  meaning.evaluation = HasAny(words, kEvaluations);
  meaning.whole = meaning.role == SeriesRole::kLoss && NamesTheWhole(words);
  meaning.part =
      meaning.role == SeriesRole::kLoss && (NamesAPart(words) || BoosterRole(name).has_value());
  meaning.boxes = meaning.role == SeriesRole::kLoss && NamesBoxes(words);
  return meaning;
}

// Caches results, because rules call this in each step for each series.
Meaning MeaningOf(std::string_view name) {
  thread_local NameMemo<Meaning> memo;
  return memo.Of(name, FindMeaning);
}

}  // namespace

SeriesRole RoleByName(std::string_view name) { return MeaningOf(name).role; }
GameSide SideByName(std::string_view name) { return MeaningOf(name).side; }
bool IsOfEvaluation(std::string_view name) { return MeaningOf(name).evaluation; }
bool MayBePart(std::string_view name) { return MeaningOf(name).part; }
bool IsLossOfBoxes(std::string_view name) { return MeaningOf(name).boxes; }
bool IsWholeLoss(std::string_view name) { return MeaningOf(name).whole; }

SeriesRole SeriesRoles::Of(std::string_view name) const {
  const auto stated = stated_.find(name);
  return stated != stated_.end() ? stated->second : RoleByName(name);
}

}  // namespace plumbline
