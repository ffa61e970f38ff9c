#include "audit/readers/scalars/step_name.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

#include "analysis/role/role.h"
#include "audit/readers/input/file.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/text_file.h"
#include "base/names/name_memo.h"

namespace plumbline::audit {
namespace {

// Sorted by preference, best names first.
constexpr std::string_view kStepNames[] = {"step",
                                           "_step",
                                           "global_step",
                                           "iteration",
                                           "iter",
                                           "trainer/global_step",
                                           "global step",
                                           "time/total_timesteps",
                                           "training_iteration",
                                           "global_step/max_steps",
                                           "train/global_step",
                                           "train/step",
                                           "steps",
                                           "iterations",
                                           "global_iter",
                                           "global_iteration",
                                           "n_iter",
                                           "it",
                                           "train_step",
                                           "training_step",
                                           "train_steps",
                                           "train_iter",
                                           "optimizer_step",
                                           "num_updates",
                                           "n_updates",
                                           "num_steps",
                                           "update",
                                           "updates",
                                           "step_num",
                                           "current_step",
                                           "current_steps",
                                           "timesteps_total",
                                           "total_timesteps",
                                           "num_timesteps",
                                           "total_steps",
                                           "total_train_updates",
                                           "schritt"};
constexpr std::string_view kEpochNames[] = {"epoch", "epochs", "trainer/epoch", "train/epoch",
                                            "training epoch"};

constexpr std::string_view kTrainingWords[] = {
    "loss",         "losses",   "lr",      "perplexity", "ppl",  "nll",
    "bpb",          "mfu",      "acc",     "acc1",       "grad", "gnorm",
    "crossentropy", "accuracy", "reward",  "rew",        "cost", "crossentropyloss",
    "xent",         "rmse",     "logloss", "learn",      "auc",  "l2",
    "mae",          "mse",      "mape",    "rmsle",      "l1",   "merror",
    "aucpr",        "huber",    "quantile"};

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return lower;
}

bool IsWordLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

}  // namespace

static int FindStepNameRank(std::string_view name) {
  constexpr size_t kLongest = 24;
  if (name.size() > kLongest) return -1;
  const std::string lower = Lower(name);
  const auto* at = std::find(std::begin(kStepNames), std::end(kStepNames), lower);
  if (at != std::end(kStepNames)) return static_cast<int>(at - std::begin(kStepNames));
  const auto* epoch = std::find(std::begin(kEpochNames), std::end(kEpochNames), lower);
  if (epoch == std::end(kEpochNames)) return -1;
  return static_cast<int>(std::size(kStepNames) +
                          static_cast<size_t>(epoch - std::begin(kEpochNames)));
}

// Returns true if the name of a step or an epoch may begin with `c`.
static bool BeginsLikeStep(char c) {
  static constexpr std::string_view kFirst = "_ceginostu";  // first letters of all names
  return kFirst.find(static_cast<char>(c == '_' ? c : c | 0x20)) != std::string_view::npos;
}

int StepNameRank(std::string_view name) {
  if (name.empty() || !BeginsLikeStep(name[0])) return -1;
  thread_local NameMemo<int> memo;
  return memo.Of(name, FindStepNameRank);
}

bool BeginsStepName(std::string_view word) {
  if (word.empty() || !BeginsLikeStep(word[0])) return false;
  if (word[0] == '_') return true;
  const std::string lower = Lower(word);
  const auto begins = [&](std::string_view name) { return name.starts_with(lower); };
  return std::any_of(std::begin(kStepNames), std::end(kStepNames), begins) ||
         std::any_of(std::begin(kEpochNames), std::end(kEpochNames), begins);
}

bool IsEpochName(std::string_view name) {
  const char first = name.empty() ? ' ' : static_cast<char>(name[0] | 0x20);
  if (first != 'e' && first != 't') return false;
  return StepNameRank(name) >= static_cast<int>(std::size(kStepNames));
}

bool IsBatchName(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "batch",   "batch_idx", "batch_id",   "batch_index",   "batch_num", "batch_no",
      "batch_i", "minibatch", "mini_batch", "step_in_epoch", "local_step"};
  return std::find(std::begin(kNames), std::end(kNames), Lower(name)) != std::end(kNames);
}

static bool FindTrainingWord(std::string_view name) {
  const std::string lower = Lower(name);
  if (lower.find("learning rate") != std::string::npos ||
      lower.find("learning_rate") != std::string::npos ||
      lower.find("learningrate") != std::string::npos ||
      lower.find("cross-entropy") != std::string::npos ||
      lower.find("cross_entropy") != std::string::npos || lower.ends_with("objective function"))
    return true;
  if (lower == "train-error" || lower == "eval-error" || lower == "val-error") return true;
  for (size_t begin = 0; begin < lower.size();) {
    if (!IsWordLetter(lower[begin])) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < lower.size() && IsWordLetter(lower[end])) ++end;
    const std::string_view word(lower.data() + begin, end - begin);
    if (word.ends_with("loss")) return true;
    if (word.starts_with("loss") && word.size() <= 6) return true;  // such as LossPi, LossV
    if (std::find(std::begin(kTrainingWords), std::end(kTrainingWords), word) !=
        std::end(kTrainingWords))
      return true;
    begin = end;
  }
  if (IsOfBooster(name)) return true;
  // "episodic_return=[21.]" (CleanRL)
  if (lower.find("return") != lower.npos && SideByName(name) == GameSide::kEpisodes) return true;
  const SeriesRole role = RoleByName(name);
  return role == SeriesRole::kLoss || role == SeriesRole::kEvaluationLoss ||
         role == SeriesRole::kAuxiliaryLoss || role == SeriesRole::kLikelihood ||
         role == SeriesRole::kReward;
}

bool HasTrainingWord(std::string_view name) {
  thread_local NameMemo<bool> memo;
  return memo.Of(name, FindTrainingWord);
}

bool IsNestedStep(std::string_view name) {
  static constexpr std::string_view kNames[] = {"step",         "global_step",  "iteration",
                                                "iter",         "current_step", "trainer_step",
                                                "batches_seen", "step_num"};
  const size_t slash = name.rfind('/');
  if (slash == std::string_view::npos || StepNameRank(name) >= 0) return false;
  const std::string last = Lower(name.substr(slash + 1));
  return std::find(std::begin(kNames), std::end(kNames), last) != std::end(kNames);
}

bool StepChoice::MayBe(std::string_view name) const {
  return wanted_.empty() ? StepNameRank(name) >= 0 || IsNestedStep(name) : name == wanted_;
}

void StepChoice::Offer(std::string_view name, double value) {
  if (!MayBe(name) && !IsBatchName(name)) return;
  auto at = seen_.find(name);
  if (at == seen_.end()) {
    if (seen_.size() == kMostCandidates) return;
    at = seen_.emplace(std::string(name), Seen{}).first;
  }
  Seen& seen = at->second;
  if (!IsWhole(value)) {
    ++seen.other;
    return;
  }
  ++seen.whole;
  seen.falls += value < seen.last ? 1 : 0;
  seen.stays += value == seen.last ? 1 : 0;
  seen.last = value;
}

std::optional<std::string> StepChoice::Best() const {
  uint64_t most = 0;
  for (const auto& [name, seen] : seen_) {
    if (!IsEpochName(name) && seen.whole > seen.other) most = std::max(most, seen.whole);
  }
  // A smaller rating is better. Members: epoch, never changes, nested, number of falls, number of
  // repeats, not global, rank of the name, name.
  using Rating = std::tuple<bool, bool, bool, uint64_t, uint64_t, bool, int, std::string>;
  std::optional<Rating> best;
  for (const auto& [name, seen] : seen_) {
    const bool epoch = IsEpochName(name);
    if (!MayBe(name)) continue;
    if (seen.whole <= seen.other || (!epoch && 2 * seen.whole < most)) continue;
    // Skips a total that is the same in each row, because it would merge all rows into one step.
    if (wanted_.empty() && seen.still() && seen.whole > 2 && Lower(name).find("total") == 0)
      continue;
    const bool global = Lower(name).find("global") != std::string::npos;
    const Rating rating{epoch,      seen.still(), IsNestedStep(name), seen.falls,
                        seen.stays, !global,      StepNameRank(name), name};
    if (!best || rating < *best) best = rating;
  }
  return best ? std::optional(std::get<std::string>(*best)) : std::nullopt;
}

std::string StepChoice::Batch() const {
  const std::optional<std::string> best = Best();
  if (!best || !wanted_.empty() || !IsEpochName(*best)) return "";
  const Seen& epoch = seen_.find(*best)->second;
  for (const auto& [name, seen] : seen_) {
    const bool counts = seen.whole > seen.other && 2 * seen.whole >= epoch.whole && !seen.still();
    if (IsBatchName(name) && counts && epoch.stays > 0) return name;
  }
  return "";
}

std::string StepChoice::Epoch() const {
  for (const auto& [name, seen] : seen_) {
    if (IsEpochName(name) && seen.whole > seen.other) return name;
  }
  return "";
}

bool LossGoesOn(double loss, double first, double last) {
  if (std::isnan(loss)) return std::isnan(last) && !std::isnan(first);
  return std::fabs(loss - last) < std::fabs(loss - first) / 2;
}

// Returns the number of steps of a finished epoch. If steps begin at 0, it is one more than the
// last step.
int64_t EpochSteps::Length(int64_t step) const { return last_ + (step == 0 ? stride_ : 0); }

int64_t EpochSteps::Of(int64_t step, std::optional<int64_t> epoch, std::optional<double> loss) {
  constexpr int64_t kMost = int64_t{1} << 53;
  if (epoch && epoch_ && *epoch != *epoch_) {
    const auto known = begins_.find(*epoch);
    if (known != begins_.end()) {
      before_ = known->second;  // the process went back to an earlier epoch
    } else if (*epoch > *epoch_ && step < last_) {
      before_ = std::min(kMost, before_ + Length(step));
      counted_ = true;
    }
  }
  if (first_ < 0) first_ = step;
  if (!epoch && step == first_ && step <= 1 && last_ > step + 1) {
    if (loss && first_loss_ && LossGoesOn(*loss, *first_loss_, last_loss_)) {
      before_ = std::min(kMost, before_ + Length(step));
      ++again_;
    } else {
      first_loss_ = loss;  // the run was restarted
    }
  }
  if (loss && !first_loss_) first_loss_ = loss;
  if (epoch && begins_.size() < kMostEpochs) begins_.emplace(*epoch, before_);
  if (epoch) epoch_ = epoch;
  if (step > last_) stride_ = step - last_;
  last_ = step;
  last_loss_ = loss.value_or(last_loss_);
  return std::min(kMost, before_ + step);
}

std::string EpochSteps::Note(std::string_view name) const {
  if (counted_)
    return "expected rising steps, found that " + Quoted(PlainName(name)) +
           " restarts in each epoch: it is continued over epochs";
  if (again_ == 0) return "";
  return "expected rising steps, found that " + Quoted(PlainName(name)) + " restarts " +
         std::to_string(again_) + (again_ == 1 ? " time" : " times") +
         " while the loss continues: it is continued over epochs";
}

}  // namespace plumbline::audit
