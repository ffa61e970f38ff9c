#include "analysis/role/loss_name.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>

#include "absl/strings/ascii.h"

namespace plumbline {
namespace {

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
// Words of a learner whose opponent also learns. Its loss rises as the other side improves, or as
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
// Parts of a detector's loss.
constexpr std::string_view kOfDetector[] = {
    "cls",       "bbox", "box",  "rpn", "roi",        "obj",          "dfl",
    "iou",       "giou", "mask", "ctr", "centerness", "localization", "classification",
    "objectness"};

// Returns true for the name of a loss's value, `loss_value`. `loss/value` and `value_loss` are
// losses of a critic.
bool NamesLossValue(std::string_view name) {
  constexpr std::string_view kSpellings[] = {"loss_value", "loss-value", "loss value", "lossvalue"};
  std::string lower(name);
  absl::AsciiStrToLower(&lower);
  return std::any_of(std::begin(kSpellings), std::end(kSpellings),
                     [&](std::string_view known) { return lower.ends_with(known); });
}

// Returns true for the loss of a detector's masks, not for the mask of a loss.
bool IsOfMasks(const NameWords& words) {
  return Has(words, "mask") && std::all_of(words.begin(), words.end(), [](const std::string& word) {
           const bool split = std::find(std::begin(kEvaluations), std::end(kEvaluations), word) !=
                              std::end(kEvaluations);
           return word == "loss" || word == "mask" || word == "train" || split;
         });
}

// Returns true for boxes of a detector. `reg` with `box` means a regression.
bool IsOfBoxes(const NameWords& words) {
  return Has(words, "reg") && (Has(words, "box") || Has(words, "bbox"));
}

// Returns true if a word is one of `any`, or begins with one of 3 letters or more and ends in a
// number: "critic1".
bool HasNumbered(const NameWords& words, std::span<const std::string_view> any) {
  constexpr size_t kFewestLetters = 3;
  return HasAny(words, any) || std::any_of(words.begin(), words.end(), [&](std::string_view word) {
           const std::string_view stem = word.substr(0, word.find_last_not_of("0123456789") + 1);
           return stem.size() >= kFewestLetters &&
                  std::find(any.begin(), any.end(), stem) != any.end();
         });
}

}  // namespace

GameSide GameSideOf(std::string_view name, const NameWords& words) {
  const bool its_value = NamesLossValue(name);
  const bool critic = std::any_of(std::begin(kValue), std::end(kValue), [&](std::string_view word) {
    return HasNumbered(words, {&word, 1}) && !(its_value && word == "value");
  });
  return HasNumbered(words, kPolicy)          ? GameSide::kPolicy
         : critic                             ? GameSide::kValue
         : HasNumbered(words, kGenerator)     ? GameSide::kGenerator
         : HasNumbered(words, kDiscriminator) ? GameSide::kDiscriminator
                                              : GameSide::kNone;
}

SeriesRole LossRoleOf(std::string_view name, const NameWords& words) {
  if (!Has(words, "loss") && !InARow(words, "cross", "entropy")) return SeriesRole::kNone;
  const bool of_gradients =
      InARow(words, "policy", "gradient") || InARow(words, "gradient", "penalty");
  // CleanRL's `losses/qf1_values` is the estimate of a critic.
  if (InARow(words, "qf1", "values") || InARow(words, "qf2", "values") ||
      InARow(words, "q", "values"))
    return SeriesRole::kNone;
  // `loss/avg_raw_advantages_abs` is no loss: SkyRL also logs the inputs of the loss under `loss/`.
  if (words.back() != "loss" && (Has(words, "advantages") || Has(words, "advantage")))
    return SeriesRole::kNone;
  const bool constant = HasAny(words, kNotTheValue) && !IsOfMasks(words);
  if (constant && !of_gradients) return SeriesRole::kNone;
  const bool cross_entropy = InARow(words, "cross", "entropy");
  const bool term = !cross_entropy && !IsOfBoxes(words) && HasAny(words, kTerms);
  if (term || HasAny(words, kGame) || GameSideOf(name, words) != GameSide::kNone)
    return SeriesRole::kAuxiliaryLoss;
  return HasAny(words, kEvaluations) ? SeriesRole::kEvaluationLoss : SeriesRole::kLoss;
}

bool NamesTheWhole(const NameWords& words) {
  static constexpr std::string_view kWhole[] = {
      "loss",    "train",   "training",  "total",    "overall", "global", "mean",  "avg",
      "average", "running", "smooth",    "smoothed", "moving",  "ema",    "batch", "step",
      "epoch",   "iter",    "iteration", "current",  "last",    "raw",    "lm"};
  return std::all_of(words.begin(), words.end(), [](const std::string& word) {
    return std::find(std::begin(kWhole), std::end(kWhole), word) != std::end(kWhole);
  });
}

bool NamesAPart(const NameWords& words) {
  return Has(words, "l1") || Has(words, "l2") || Has(words, "nll") || Has(words, "metric") ||
         IsOfBoxes(words) || HasAny(words, kOfDetector);
}

bool NamesBoxes(const NameWords& words) {
  constexpr std::string_view kBoxes[] = {"box", "bbox", "dfl", "giou", "ciou"};
  return HasAny(words, kBoxes);
}

bool IsBalanceLoss(std::string_view name) {
  constexpr std::string_view kBalance[] = {"balance", "balancing", "lb"};
  constexpr std::string_view kAux[] = {"aux", "auxiliary"};
  constexpr std::string_view kExperts[] = {"moe", "router", "routing", "expert", "experts", "gate"};
  constexpr std::string_view kOther[] = {"class", "classes", "label", "sample",
                                         "data",  "domain",  "group", "modality"};
  constexpr std::string_view kPlain[] = {"aux", "loss", "train"};
  const NameWords words = WordsOfName(name);
  if (HasAny(words, kOther)) return false;
  if (HasAny(words, kBalance) || (HasAny(words, kAux) && HasAny(words, kExperts))) return true;
  return Has(words, "aux") && std::all_of(words.begin(), words.end(), [&](const auto& word) {
           return std::find(std::begin(kPlain), std::end(kPlain), word) != std::end(kPlain);
         });
}

}  // namespace plumbline
