#include "rules/bases/collapse_words.h"

#include <string_view>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"

namespace plumbline::rules {
namespace {

constexpr CollapseWords kNoSpread = {
    "no group has a spread of rewards",
    "no-spread",
    "groups whose rewards are equal",
    PolicySeries::kSpreadless,
    "of all groups, in ten points in a row",
    "Change the prompts' difficulty or draw again (verl algorithm.filter_groups.enable=True), and "
    "look whether the reward function returns a constant."};
constexpr CollapseWords kConstantReward = {
    "the mean reward is constant",
    "constant-reward",
    "points with one reward",
    PolicySeries::kConstantReward,
    "points in a row",
    "Call the reward function on two answers, a right and a wrong one: it returns the same, or the "
    "answer is not parsed. Then look whether prompts are too hard or too easy."};
constexpr CollapseWords kRewardFell = {
    "the mean reward collapses",
    "reward-collapse",
    "part of the reached reward that was lost",
    RewardFall::kHalf,
    "customary; 0.85 for an error",
    "Go back to a checkpoint before that step. Read answers of before and after. Then look at "
    "entropy, response length and drift/mismatch-metric in these steps, and whether the prompts or "
    "the reward function changed there."};
constexpr CollapseWords kEntropyGone = {
    "the policy's entropy collapses",
    "entropy-collapse",
    "entropy, of its first ten points",
    EntropyCourse::kPart,
    "customary",
    "Go back to a checkpoint before that step; raise the upper clip (epsilon_high=0.28), add an "
    "entropy bonus or lower the rate."};
constexpr CollapseWords kLeaves = {
    "the policy leaves its reference",
    "kl-explosion",
    "growth in e-folds",
    ReferenceCourse::kQuarterFolds,
    "within a quarter of the points; 3.5 within half of them",
    "Go back to a checkpoint before that step; raise the KL coefficient (TRL beta, verl "
    "actor.kl_loss_coef) or lower the rate, and look at what the reward pays for."};
constexpr CollapseWords kNegative = {
    "the KL to the reference is negative",
    "negative-kl",
    "KL to the reference",
    -1,
    "a mean over samples of the policy is at least 0, up to chance",
    "The answers are not samples of the distribution that is scored: compare temperature, top-p "
    "and "
    "top-k of generation with scoring, and masks of padding and of the end token."};
constexpr CollapseWords kClipped = {
    "most tokens are clipped",
    "clipped",
    "share of clipped tokens",
    PolicySeries::kMostClipped,
    "customary, in ten points in a row",
    "Lower the rate or the number of updates per batch; look at drift/mismatch-metric first."};
constexpr CollapseWords kTruncated = {
    "most answers are truncated",
    "truncated",
    "share of truncated answers",
    PolicySeries::kMostTruncated,
    "in ten points in a row, after five under a fifth",
    "Read some answers: a policy that repeats itself never ends. Go back to a checkpoint before "
    "that "
    "step; penalise length (DAPO's overlong shaping), or allow longer answers."};
constexpr CollapseWords kTruncatedFromTheFirst = {
    "answers are truncated from the first step on",
    "truncated-from-the-first",
    "share of truncated answers",
    PolicySeries::kAllTruncated,
    "in each of the first 20 points, without a reward",
    ""};
constexpr CollapseWords kInverted = {
    "the policy learns to prefer rejected answers",
    "inverted-preference",
    "points in a row with an accuracy below 0.5",
    PolicySeries::kFewestPairs,
    "at least, and more than a coin gives in as many points; the margin is below 0 in as many",
    "Check the sign of the loss, and that the loss, the margin and the accuracy take chosen and "
    "rejected answers in the same order. Then look whether the rate is too high."};
constexpr CollapseWords kGrowsOld = {
    "the age of samples grows without end",
    "staleness-grows",
    "age of samples",
    StalenessCourse::kLimit,
    "and growth by a quarter in each of the last two quarters of the points",
    "Bound the age (off-policy steps, queue length), and compare the rates of generation and "
    "training: the queue of samples grows, or weight updates do not reach the engine."};
constexpr CollapseWords kSameModel = {
    "the reference is the policy",
    "reference-is-policy",
    "distance to the reference",
    0,
    "two different models differ in some step",
    "Load the reference again, and look whether an adapter is disabled on one side alone. If no "
    "reference is meant, set its coefficient to 0 and do not log it."};

// Returns the setting of the longest answer, in the framework that logs a share with this name.
const char* LongestLengthSetting(std::string_view op) {
  const auto has = [&](std::string_view words) { return op.find(words) != std::string_view::npos; };
  if (has("completions/")) return "TRL and ms-swift: max_completion_length";
  if (has("response_length")) return "verl: data.max_response_length";
  if (has("no_eos_ratio")) return "AReaL: gconfig.max_new_tokens";
  if (has("is_truncated")) return "prime-rl: sampling.max_tokens";
  if (has("truncation_rate")) return "NeMo-RL: policy.generation.max_new_tokens";
  if (has("rollout/")) return "slime: --rollout-max-response-len";
  return "the engine's longest answer, such as max_new_tokens or max_tokens";
}

// Returns the part of the reached reward that was lost.
double LostPart(const RewardCourse& reward) {
  const RewardFall& fall = reward.fall();
  return (fall.best() - fall.level()) / fall.reached();
}

std::string FallText(const std::string& op, const RewardCourse& reward) {
  const RewardFall& fall = reward.fall();
  if (fall.part() == 0)
    return absl::StrFormat(
        "%s was below half of what it had reached from step %d on, and came back: it is %.4g, and "
        "was %.4g at its best (medians of ten points).",
        op, fall.onset(), fall.level(), fall.best());
  return absl::StrFormat(
      "%s was %.4g at its best and is %.4g (medians of ten points); from step %d on it is below "
      "half of what it had reached.",
      op, fall.best(), fall.level(), fall.onset());
}

}  // namespace

std::string FixOfNote(const std::string& op, const PolicySeries& series) {
  if (series.from_the_first()) {
    return absl::StrFormat(
        "Allow longer answers (%s), and look whether the chat template and the engine's stop "
        "tokens have the end token: no answer ends by itself.",
        LongestLengthSetting(op));
  }
  if (series.constant()) return "Nothing if no reference is meant. If one is, load it again.";
  if (series.collapsed())
    return "Look whether the prompts or the reward function changed in these steps.";
  return "Nothing while the reward rises. If the task is solved, stop, or go on with harder "
         "prompts.";
}

std::tuple<bool, bool, size_t> RankOfReward(const std::string& op) {
  return {IsOfEvaluation(op), IsPartOfReward(op), op.size()};
}

v1::Level LevelOfFall(const std::string& op, const PolicySeries& series) {
  const double part = series.reward().fall().part();
  if (part == 0) return v1::LEVEL_NOTE;  // it came back
  const bool most = part >= RewardFall::kMost;
  return most && !IsRewardOfEpisodes(op) ? v1::LEVEL_ERROR : v1::LEVEL_WARNING;
}

const CollapseWords& CollapseWordsOf(PolicyKind kind, const PolicySeries& series) {
  if (series.constant()) return kSameModel;
  switch (kind) {
    case PolicyKind::kEntropy:
      return kEntropyGone;
    case PolicyKind::kReferenceKl:
      return series.negative() ? kNegative : kLeaves;
    case PolicyKind::kClipShare:
      return kClipped;
    case PolicyKind::kTruncatedShare:
      return series.from_the_first() ? kTruncatedFromTheFirst : kTruncated;
    case PolicyKind::kPairAccuracy:
      return kInverted;
    case PolicyKind::kStaleness:
      return kGrowsOld;
    case PolicyKind::kReward:
      return series.collapsed() ? kRewardFell : kConstantReward;
    default:
      return kNoSpread;
  }
}

std::string CollapseText(PolicyKind kind, const std::string& op, const PolicySeries& series) {
  if (series.constant() && kind == PolicyKind::kReferenceKl)
    return absl::StrFormat(
        "%s is exactly 0 in each of %d points: the reference gives each token the probability that "
        "the policy gives, or no reference is used.",
        op, series.points());
  if (series.constant())
    return absl::StrFormat(
        "%s is %.4g in its first %d points, and the margin is exactly 0: the reference gives each "
        "answer the probability that the policy gives.",
        op, series.measured(), PolicySeries::kTenPoints);
  switch (kind) {
    case PolicyKind::kEntropy:
      return absl::StrFormat(
          "%s was %.4g in its first ten points and is %.4g; it is below a tenth from step %d on.",
          op, series.entropy().start(), series.entropy().level(), series.onset());
    case PolicyKind::kReferenceKl:
      if (series.negative())
        return absl::StrFormat("%s is %.4g; from step %d on it is below 0 beyond its noise.", op,
                               series.newest(), series.onset());
      return absl::StrFormat("%s grew by %.3g e-folds from step %d on, to %.4g.", op,
                             series.reference().folds(), series.onset(), series.measured());
    case PolicyKind::kReward:
      if (series.collapsed()) return FallText(op, series.reward());
      return absl::StrFormat("%s is exactly %.6g in %d points in a row, from step %d on.", op,
                             series.measured(), series.reward().equal(), series.onset());
    case PolicyKind::kClipShare:
      return absl::StrFormat(
          "%s is %.3g: more than half of the tokens are clipped from step %d on.", op,
          series.measured(), series.onset());
    case PolicyKind::kStaleness:
      return absl::StrFormat("%s grows over all %d points, to %.4g.", op, series.points(),
                             series.newest());
    case PolicyKind::kPairAccuracy:
      return absl::StrFormat(
          "%s is below 0.5 in %d points in a row, from step %d on, and the margin is below 0: the "
          "policy gives rejected answers a higher reward than chosen ones.",
          op, series.below(), series.onset());
    case PolicyKind::kTruncatedShare:
      if (series.from_the_first())
        return absl::StrFormat(
            "%s is 0.9 or more in each of the first %d points: nearly all answers end at the "
            "longest length, before they are complete.",
            op, PolicySeries::kFromTheFirst);
      return absl::StrFormat(
          "%s is %.3g: half of the answers or more end at the longest length from step %d on.", op,
          series.measured(), series.onset());
    default:
      return absl::StrFormat(
          "%s is %.4g from step %d on: the rewards within each group are equal, and their gradient "
          "is 0.",
          op, series.measured(), series.onset());
  }
}

double CollapseMeasure(PolicyKind kind, const PolicySeries& series) {
  if (series.constant()) return 0;
  if (kind == PolicyKind::kEntropy) return series.entropy().level() / series.entropy().start();
  if (series.negative()) return series.newest();
  if (kind == PolicyKind::kReferenceKl) return series.reference().folds();
  if (series.collapsed()) return LostPart(series.reward());
  if (kind == PolicyKind::kReward) return static_cast<double>(series.reward().equal());
  if (kind == PolicyKind::kStaleness) return series.newest();
  if (kind == PolicyKind::kPairAccuracy) return static_cast<double>(series.below());
  const bool spread = kind == PolicyKind::kRewardSpread || kind == PolicyKind::kMixedShare;
  return spread ? 1 : series.measured();
}

std::string RewardText(const std::string& op, const RewardCourse& reward) {
  if (!reward.known()) return "";
  if (reward.fell())
    return absl::StrFormat(" The reward %s fell from %.4g in step %d to %.4g.", op, reward.best(),
                           reward.best_step(), reward.level());
  if (reward.solved())
    return absl::StrFormat(
        " The reward %s is constant at its highest value, %.4g: the task looks "
        "solved.",
        op, reward.level());
  return absl::StrFormat(" The reward %s is %.4g.", op, reward.level());
}

std::optional<v1::Verdict> RestOfPolicy(PolicyKind kind, const PolicySeries& series) {
  const auto few = [&](uint64_t enough) {
    return Inconclusive(
        absl::StrFormat("few-points: %d points, %d are needed", series.points(), enough));
  };
  switch (kind) {
    case PolicyKind::kEntropy:
      if (!series.entropy().positive())
        return Inconclusive("not-positive: an entropy of a density has no tenth");
      if (series.points() < 2 * EntropyCourse::kFirst) return few(2 * EntropyCourse::kFirst);
      return Pass("the entropy stays above a tenth of its beginning");
    case PolicyKind::kReferenceKl:
      if (series.points() < ReferenceCourse::kFewest) return few(ReferenceCourse::kFewest);
      return Pass("the distance to the reference does not grow by e-folds");
    case PolicyKind::kReward:
      if (series.points() < 2 * RewardFall::kTen) return few(2 * RewardFall::kTen);
      return Pass("the mean reward stays above half of what it reached");
    case PolicyKind::kSpreadlessShare:
    case PolicyKind::kMixedShare:
    case PolicyKind::kRewardSpread:
      if (series.points() < PolicySeries::kTenPoints) return few(PolicySeries::kTenPoints);
      return Pass("rewards differ within groups");
    case PolicyKind::kClipShare:
      if (series.points() < PolicySeries::kTenPoints) return few(PolicySeries::kTenPoints);
      return Pass("at most half of the tokens are clipped");
    case PolicyKind::kTruncatedShare:
      if (series.points() < 2 * PolicySeries::kTenPoints) return few(2 * PolicySeries::kTenPoints);
      return Pass("answers do not come to be truncated");
    case PolicyKind::kPairAccuracy:
      if (series.points() < PolicySeries::kFewestPairs) return few(PolicySeries::kFewestPairs);
      return Pass("accuracies of pairs are not below one half, with a margin below 0, for long");
    default:
      return std::nullopt;
  }
}

}  // namespace plumbline::rules
