// A name is split into words. The words that it contains, and those that it must not contain, give
// its role.
#include "analysis/role/role.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "analysis/role/booster_name.h"
#include "analysis/role/role_names.h"
#include "base/names/name_memo.h"

namespace plumbline {
namespace {

using Words = std::vector<std::string>;

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

// Two words that are written together.
struct Together {
  std::string_view written, first, second;
};
constexpr Together kTogether[] = {
    {"trainloss", "train", "loss"}, {"trainingloss", "train", "loss"},
    {"valloss", "val", "loss"},     {"evalloss", "eval", "loss"},
    {"testloss", "test", "loss"},   {"lmloss", "lm", "loss"},
    {"celoss", "ce", "loss"},       {"nllloss", "nll", "loss"},
    {"mseloss", "mse", "loss"},     {"bceloss", "bce", "loss"},
    {"totalloss", "total", "loss"}, {"auxloss", "aux", "loss"},
    {"zloss", "z", "loss"},         {"lossscale", "loss", "scale"},
    {"gradnorm", "grad", "norm"},   {"learningrate", "learning", "rate"},
    {"losses", "", "loss"},         {"xent", "cross", "loss"},
    {"cost", "", "loss"},           {"logloss", "log", "loss"},
    {"mlogloss", "log", "loss"},    {"nll", "nll", "loss"},
    {"rmse", "metric", "loss"},     {"mse", "metric", "loss"},
    {"mae", "metric", "loss"},      {"mape", "metric", "loss"},
    {"rmsle", "metric", "loss"},
};

// Words that change the meaning of a loss or a gradient norm: a spread, a weight, a setting.
constexpr std::string_view kNotTheValue[] = {
    "std",     "stddev",      "var",       "variance",   "min",     "max",      "best",
    "lowest",  "sum",         "count",     "num",        "weight",  "weights",  "coef",
    "coeff",   "coefficient", "coefs",     "factor",     "scale",   "scaler",   "scaling",
    "lambda",  "mask",        "threshold", "target",     "ratio",   "delta",    "diff",
    "change",  "improvement", "gap",       "slope",      "grad",    "gradient", "gradients",
    "norm",    "lr",          "rate",      "time",       "seconds", "secs",     "ms",
    "tokens",  "denominator", "divisor",   "divergence", "spike",   "spikes",   "patience",
    "packet",  "data",        "percent",   "quantile",   "p50",     "p90",      "p95",
    "p99",     "histogram",   "over",      "frames",     "heat",    "kg",       "pressure",
    "dropout", "keep",        "usd",       "skipped",    "nan",     "inf",      "error",
    "errors"};
// Data that the model is not trained on.
constexpr std::string_view kEvaluations[] = {"val",        "valid",  "validation", "eval",
                                             "evaluation", "test",   "testing",    "dev",
                                             "heldout",    "holdout"};
// Terms that are added to a loss.
constexpr std::string_view kTerms[] = {"aux",
                                       "auxiliary",
                                       "z",
                                       "balance",
                                       "balancing",
                                       "lb",
                                       "router",
                                       "routing",
                                       "entropy",
                                       "kl",
                                       "kld",
                                       "penalty",
                                       "reg",
                                       "regularization",
                                       "commit",
                                       "commitment",
                                       "regularisation",
                                       "decay",
                                       "orth",
                                       "orthogonal",
                                       "sparsity",
                                       "partial",
                                       "orthogonality",
                                       "codebook",
                                       "vq",
                                       "diversity",
                                       "ent"};
// Words of a learner whose opponent learns too: its loss rises as the other side improves, or as
// rewards arrive.
constexpr std::string_view kGame[] = {
    "adversarial", "adv",      "gan",     "wgan", "gp",  "alpha",     "temp",
    "temperature", "reward",   "rewards", "rnd",  "icm", "intrinsic", "extrinsic",
    "curiosity",   "lagrange", "cql",     "ppo",  "grpo"};
constexpr std::string_view kPolicy[] = {"policy", "pg", "pi", "actor", "surrogate"};
constexpr std::string_view kValue[] = {"value", "values", "vf", "critic", "critics",
                                       "q",     "q1",     "q2", "qf",     "qf1",
                                       "qf2",   "qvalue", "td", "v",      "baseline"};
constexpr std::string_view kGenerator[] = {"generator", "gen", "g"};
constexpr std::string_view kDiscriminator[] = {"discriminator", "disc", "d"};
// A bound, a factor, a setting of the scheduler.
constexpr std::string_view kNotTheRate[] = {
    "min",      "max",      "base",      "initial", "init",      "target", "final",  "end",
    "start",    "peak",     "warmup",    "scale",   "mult",      "ratio",  "factor", "decay",
    "weight",   "steps",    "step",      "epoch",   "find",      "finder", "range",  "gamma",
    "patience", "schedule", "scheduler", "scaler",  "multiplier"};

// With these words, "cost" is what is minimised; "batch_cost" is a time, "cost_usd" is money.
constexpr std::string_view kNextToCost[] = {"cost", "train", "training",   "val",  "valid",
                                            "test", "eval",  "validation", "mean", "avg"};

bool Has(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool HasAny(const Words& words, std::span<const std::string_view> any) {
  return std::any_of(any.begin(), any.end(), [&](std::string_view w) { return Has(words, w); });
}

// Returns true if `second` follows `first` directly.
bool InARow(const Words& words, std::string_view first, std::string_view second) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i - 1] == first && words[i] == second) return true;
  }
  return false;
}

Words WordsOf(std::string_view name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    if (i > 0 && absl::ascii_isupper(name[i]) && absl::ascii_islower(name[i - 1])) text += ' ';
    text += absl::ascii_tolower(name[i]);
  }
  const Words parts = absl::StrSplit(text, absl::ByAnyChar("/_-.: \t()[]"), absl::SkipEmpty());
  Words words;
  for (const std::string& part : parts) {
    const auto* together = std::find_if(std::begin(kTogether), std::end(kTogether),
                                        [&](const auto& known) { return known.written == part; });
    const bool other_cost =
        part == "cost" && !std::all_of(parts.begin(), parts.end(), [](const auto& p) {
          return std::find(std::begin(kNextToCost), std::end(kNextToCost), p) !=
                 std::end(kNextToCost);
        });
    if (together == std::end(kTogether) || other_cost) {
      words.push_back(part);
      continue;
    }
    if (!together->first.empty()) words.emplace_back(together->first);
    words.emplace_back(together->second);
  }
  return words;
}

bool IsLossScale(const Words& words) {
  constexpr std::string_view kSettings[] = {"min",    "max",    "init",    "initial", "window",
                                            "factor", "growth", "backoff", "interval"};
  // GradScaler's scale, as loops log it: `grad_scale`, `amp_scale`, `scaler/scale`, or `scale`
  // alone.
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
  const bool is = Has(words, "lr") || InARow(words, "learning", "rate");
  return is && !HasAny(words, kNotTheRate);
}

// Returns true for the name of a loss's value, `loss_value`; `loss/value` and `value_loss` are
// those of a critic.
bool StatesLossValue(std::string_view name) {
  constexpr std::string_view kSpellings[] = {"loss_value", "loss-value", "loss value", "lossvalue"};
  std::string lower(name);
  absl::AsciiStrToLower(&lower);
  return std::any_of(std::begin(kSpellings), std::end(kSpellings),
                     [&](std::string_view stated) { return lower.ends_with(stated); });
}

GameSide SideOf(std::string_view name, const Words& words) {
  const bool its_value = StatesLossValue(name);
  const bool critic = std::any_of(std::begin(kValue), std::end(kValue), [&](std::string_view word) {
    return Has(words, word) && !(its_value && word == "value");
  });
  return HasAny(words, kPolicy)          ? GameSide::kPolicy
         : critic                        ? GameSide::kValue
         : HasAny(words, kGenerator)     ? GameSide::kGenerator
         : HasAny(words, kDiscriminator) ? GameSide::kDiscriminator
                                         : GameSide::kNone;
}

// Returns true for the loss of a detector's masks, not for the mask of a loss.
bool IsOfMasks(const Words& words) {
  return Has(words, "mask") && std::all_of(words.begin(), words.end(), [](const std::string& word) {
           const bool split = std::find(std::begin(kEvaluations), std::end(kEvaluations), word) !=
                              std::end(kEvaluations);
           return word == "loss" || word == "mask" || word == "train" || split;
         });
}

// `reg` with `box` is a regression.
bool IsOfBoxes(const Words& words) {
  return Has(words, "reg") && (Has(words, "box") || Has(words, "bbox"));
}

SeriesRole LossRole(std::string_view name, const Words& words) {
  if (!Has(words, "loss") && !InARow(words, "cross", "entropy")) return SeriesRole::kNone;
  const bool of_gradients =
      InARow(words, "policy", "gradient") || InARow(words, "gradient", "penalty");
  // CleanRL's `losses/qf1_values`: what a critic estimates.
  if (InARow(words, "qf1", "values") || InARow(words, "qf2", "values") ||
      InARow(words, "q", "values"))
    return SeriesRole::kNone;
  const bool constant = HasAny(words, kNotTheValue) && !IsOfMasks(words);
  if (constant && !of_gradients) return SeriesRole::kNone;
  const bool cross_entropy = InARow(words, "cross", "entropy");
  const bool term = !cross_entropy && !IsOfBoxes(words) && HasAny(words, kTerms);
  if (term || HasAny(words, kGame) || SideOf(name, words) != GameSide::kNone)
    return SeriesRole::kAuxiliaryLoss;
  return HasAny(words, kEvaluations) ? SeriesRole::kEvaluationLoss : SeriesRole::kLoss;
}

// Returns true for the reward of an episode or an answer, which indicates a game. Returns false for
// the rewards of a model that learns to give them (`mean_reward`), and of pairs (`rewards/chosen`),
// because their losses must fall.
bool IsOfEpisodes(const Words& words) {
  constexpr std::string_view kEpisode[] = {"ep", "episode", "episodes", "episodic"};
  constexpr std::string_view kBrought[] = {"rew",     "reward", "rewards", "return",
                                           "returns", "score",  "scores"};
  if (HasAny(words, kEpisode) && HasAny(words, kBrought)) return true;
  constexpr std::string_view kReward[] = {"reward", "rewards", "return", "returns", "epsilon"};
  constexpr std::string_view kAdjacent[] = {"avg",  "train",  "env",  "objective",
                                            "rlhf", "critic", "mean", "std"};
  const bool plain = std::all_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(std::begin(kReward), std::end(kReward), word) != std::end(kReward) ||
           std::find(std::begin(kAdjacent), std::end(kAdjacent), word) != std::end(kAdjacent);
  });
  const bool returns = Has(words, "return") || Has(words, "returns");
  return plain && HasAny(words, kReward) && (returns || words.front() != "mean");
}

// "score", "avg_score": of a game, or of answers.
bool IsScore(const Words& words) {
  constexpr std::string_view kWords[] = {"score", "scores", "avg", "average", "mean", "train"};
  return (Has(words, "score") || Has(words, "scores")) &&
         std::all_of(words.begin(), words.end(), [&](const std::string& word) {
           return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
         });
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

// If it is negative, it is a loss.
bool IsLikelihood(const Words& words) {
  constexpr std::string_view kWords[] = {"likelihood", "loglikelihood", "loglik", "elbo"};
  return HasAny(words, kWords) && !HasAny(words, kNotTheValue);
}
bool IsNegative(const Words& words) {
  return Has(words, "neg") || Has(words, "negative") || Has(words, "minus");
}

SeriesRole FindRole(std::string_view name, const Words& words) {
  if (const std::optional<SeriesRole> known = RoleInTable(name)) return *known;
  if (const std::optional<SeriesRole> booster = BoosterRole(name)) return *booster;
  if (name.starts_with("trained/")) return SeriesRole::kNone;  // run.watch's counts of parameters
  if (name.starts_with("batch_facts/")) return SeriesRole::kNone;  // counts of batches
  if (name.starts_with("settings/")) return SeriesRole::kNone;     // settings of a trainer
  if (IsLossScale(words)) return SeriesRole::kLossScale;
  if (IsGradientNorm(words)) return SeriesRole::kGradientNorm;
  if (IsPerplexity(words)) return SeriesRole::kPerplexity;  // "lm loss PPL"
  if (const SeriesRole loss = LossRole(name, words); loss != SeriesRole::kNone) return loss;
  if (IsRate(words)) return SeriesRole::kRate;
  if (IsUpdateRatio(words)) return SeriesRole::kUpdateRatio;
  if (IsMemory(words)) return SeriesRole::kMemory;
  if (IsTokens(words)) return SeriesRole::kTokens;
  if (IsLikelihood(words) && !IsNegative(words)) return SeriesRole::kLikelihood;
  if (IsStepSeconds(words)) return SeriesRole::kStepSeconds;
  return SeriesRole::kNone;
}

// Parts of a detector's loss.
constexpr std::string_view kOfDetector[] = {
    "cls",       "bbox", "box",  "rpn", "roi",        "obj",          "dfl",
    "iou",       "giou", "mask", "ctr", "centerness", "localization", "classification",
    "objectness"};

// Words of a training loss that is minimised as a whole, as against "sync_loss" or "depth_loss".
bool NamesTheWhole(const Words& words) {
  static constexpr std::string_view kWhole[] = {
      "loss",    "train",   "training",  "total",    "overall", "global", "mean",  "avg",
      "average", "running", "smooth",    "smoothed", "moving",  "ema",    "batch", "step",
      "epoch",   "iter",    "iteration", "current",  "last",    "raw",    "lm"};
  return std::all_of(words.begin(), words.end(), [](const std::string& word) {
    return std::find(std::begin(kWhole), std::end(kWhole), word) != std::end(kWhole);
  });
}

struct Meaning {
  SeriesRole role = SeriesRole::kNone;
  GameSide side = GameSide::kNone;
  bool part = false;
  bool whole = false;
  bool evaluation = false;
};

Meaning FindMeaning(std::string_view name) {
  if (name.starts_with("data/")) name.remove_prefix(5);  // DLLogger's object of values
  const Words words = WordsOf(name);
  Meaning meaning{FindRole(name, words)};
  if (meaning.role == SeriesRole::kAuxiliaryLoss) meaning.side = SideOf(name, words);
  const bool reward =
      meaning.role == SeriesRole::kReward || meaning.role == SeriesRole::kRewardSpread;
  if ((reward || meaning.role == SeriesRole::kNone) && IsOfEpisodes(words))
    meaning.side = GameSide::kEpisodes;
  // What only a trainer with rollouts logs.
  if (meaning.role >= SeriesRole::kMismatch && meaning.role <= SeriesRole::kClipShare)
    meaning.side = GameSide::kEpisodes;
  if (meaning.role == SeriesRole::kNone && IsScore(words)) meaning.side = GameSide::kScore;
  meaning.evaluation = HasAny(words, kEvaluations);
  meaning.whole = meaning.role == SeriesRole::kLoss && NamesTheWhole(words);
  meaning.part =
      meaning.role == SeriesRole::kLoss &&
      (Has(words, "l1") || Has(words, "l2") || Has(words, "nll") || Has(words, "metric") ||
       IsOfBoxes(words) || HasAny(words, kOfDetector) || BoosterRole(name).has_value());
  return meaning;
}

// Cached, because rules call this at each step of each series.
Meaning MeaningOf(std::string_view name) {
  thread_local NameMemo<Meaning> memo;
  return memo.Of(name, FindMeaning);
}

}  // namespace

SeriesRole RoleByName(std::string_view name) { return MeaningOf(name).role; }
GameSide SideByName(std::string_view name) { return MeaningOf(name).side; }
bool IsOfEvaluation(std::string_view name) { return MeaningOf(name).evaluation; }
bool MayBePart(std::string_view name) { return MeaningOf(name).part; }
bool IsWholeLoss(std::string_view name) { return MeaningOf(name).whole; }

SeriesRole SeriesRoles::Of(std::string_view name) const {
  const auto stated = stated_.find(name);
  return stated != stated_.end() ? stated->second : RoleByName(name);
}

}  // namespace plumbline
