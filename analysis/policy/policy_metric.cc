#include "analysis/policy/policy_metric.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/ascii.h"

namespace plumbline::analysis {
namespace {

// Returns the name in lower case between spaces, with a space for each separator.
std::string Words(std::string_view op) {
  std::string words = " ";
  for (const char c : op) words += absl::ascii_isalnum(c) ? absl::ascii_tolower(c) : ' ';
  return words + ' ';
}

struct MetricName {
  std::string words;
  bool Has(std::string_view word) const { return words.find(word) != std::string::npos; }
  bool Ends(std::string_view word) const { return words.ends_with(word); }
  // True for a statistic that depends on one token or sequence.
  bool extreme() const { return Has(" max ") || Has(" min ") || Has(" std ") || Has(" lower "); }
};

PolicyMetric Mismatch(MismatchScale scale, double limit, double floor, const char* source) {
  return {PolicyKind::kMismatch, scale, limit, floor, source};
}

// A metric without a limit: it is compared only with the series' own past.
PolicyMetric OfThePast(double floor, MismatchScale scale = MismatchScale::kAbsolute) {
  return Mismatch(scale, 0, floor, "");
}

// The largest of 100,000 tokens differs by 1 to 15 nats in healthy runs.
constexpr double kFarToken = 15;

// In bf16 a mean difference is 0.003 to 0.02; a single token may differ by more than 1.
PolicyMetric LogProbabilities(const MetricName& name) {
  if (name.Has(" min ") || name.Has(" std ")) return {PolicyKind::kOther};
  if (name.Has(" max ")) return OfThePast(kFarToken);
  return Mismatch(MismatchScale::kAbsolute, 0.1, 0.02, "the limit of slime's tests");
}

PolicyMetric Probabilities(const MetricName& name) {
  if (name.Has(" corr ")) return Mismatch(MismatchScale::kShare, 0.1, 0.05, "customary");
  if (name.extreme() || name.Has(" valid ")) return {PolicyKind::kOther};
  return Mismatch(MismatchScale::kAbsolute, 0.05, 0.01,
                  "customary: bf16 engines have 0.001 to 0.01");
}

// Names that end in `error` are of NeMo-RL. Its limit is a hundredth of verl's.
PolicyMetric Divergence(const MetricName& name) {
  if (name.Has(" min ") || name.Has(" std ")) return {PolicyKind::kOther};
  if (name.Has(" max ")) return OfThePast(kFarToken);
  if (name.Ends(" error "))
    return Mismatch(MismatchScale::kAbsolute, 1e-3, 1e-3, "NeMo-RL's documentation");
  return Mismatch(MismatchScale::kAbsolute, 0.1, 0.01, "verl's documentation");
}

// A factor over sequences may depend on one long sequence.
PolicyMetric Factor(const MetricName& name) {
  if (name.Has(" seq ") || name.extreme()) return OfThePast(1, MismatchScale::kFactor);
  return Mismatch(MismatchScale::kFactor, 0.05, 0.02, "NeMo-RL's documentation");
}

// The mean weight is 1 in expectation, for any two distributions.
PolicyMetric Weights(const MetricName& name) {
  if (name.Has(" eff ") || name.Ends(" ess "))
    return Mismatch(MismatchScale::kSample, 1 / 0.3, 1 / 0.3, "verl: at least 0.3");
  if (name.extreme()) return {PolicyKind::kOther};
  return Mismatch(MismatchScale::kLogRatio, std::log(2.0), 0.35, "verl: from 0.5 to 2");
}

// A count of groups is not judged, because the total is not known.
PolicyMetric Spread(const MetricName& name) {
  if (name.Has(" count ")) return {PolicyKind::kOther};
  const bool share = name.Has(" frac ") || name.Has(" zero ") || name.Has(" pct ");
  return {share ? PolicyKind::kSpreadlessShare : PolicyKind::kRewardSpread};
}

// Advantages are rewards minus their mean. If the highest is exactly 0, all are.
bool SpreadOfAdvantages(const MetricName& name) {
  if (!name.Has(" advantages ") && !name.Has(" advantage ")) return false;
  return name.Has(" max ") || name.Has(" min ") || name.Has(" abs ") || name.Has(" std ");
}

// Names of NeMo-RL, Tinker, open-instruct and prime-rl. If the share is 0, no group has a spread.
bool ShareOfMixedGroups(const MetricName& name) {
  return name.Ends(" pct mixed ") || name.Ends(" frac mixed ") ||
         name.Ends(" real batch size ratio ") || name.Ends(" effective batch size ");
}

// Preference training logs margins and both sides of a pair under `rewards/`.
PolicyMetric Reward(const MetricName& name) {
  if (name.Has(" margin ") || name.Has(" margins ")) return {PolicyKind::kMargin};
  if (name.Has(" accuracies ") && !name.extreme()) return {PolicyKind::kPairAccuracy};
  const bool preference =
      name.Has(" chosen ") || name.Has(" rejected ") || name.Has(" accuracies ");
  // The name may be of a share of solved tasks.
  const bool other = preference || name.extreme() || name.Has(" pass ");
  return {other ? PolicyKind::kOther : PolicyKind::kReward};
}

// Counts, versions and other statistics of off-policy samples are no age.
bool IsAge(const MetricName& name) {
  const bool counts = name.Has(" dropped ") || name.Has(" count ") || name.Has(" total ") ||
                      name.Has(" num samples ") || name.Ends(" version ") || name.extreme();
  return !counts && (name.Has(" staleness ") || name.Has(" lag ") || name.Has(" age ") ||
                     name.Ends(" off policy steps ") || name.Ends(" off policy steps mean ") ||
                     name.Ends(" num steps off policy "));
}

}  // namespace

double PolicyMetric::Distance(double value) const {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  switch (scale) {
    case MismatchScale::kAbsolute:
      return std::fabs(value);
    case MismatchScale::kFactor:
      return std::fabs(value - 1);
    case MismatchScale::kLogRatio:
      return value > 0 ? std::fabs(std::log(value)) : value <= 0 ? kInfinite : value;
    case MismatchScale::kShare:
      return std::fabs(1 - value);
    case MismatchScale::kSample:
      return value > 0 ? 1 / value : value <= 0 ? kInfinite : value;
  }
  return std::fabs(value);
}

bool IsPartOfReward(std::string_view op) {
  std::string words = Words(op);
  if (words.starts_with(" train ")) words.erase(0, 6);
  if (words.starts_with(" rewards ")) return true;
  constexpr std::string_view kOne = " reward ";
  if (!words.starts_with(kOne) || op.find('/') == std::string_view::npos) return false;
  // A statistic of the whole reward has only its name after it.
  const std::string rest = words.substr(kOne.size() - 1);
  for (const std::string_view whole :
       {" ", " mean ", " avg ", " average ", " total ", " all ", " score ", " sum ", " ema ",
        " reward ", " total reward ", " mean reward ", " overall ", " final "})
    if (rest == whole) return false;
  return true;
}

bool IsRewardOfEpisodes(std::string_view op) {
  const MetricName name{Words(op)};
  return name.Has(" ep ") || name.Has(" episode ") || name.Has(" episodic ") ||
         name.Ends(" avgr ");  // ElegantRL
}

bool ZeroMayMeanNoReference(std::string_view op, bool shares) {
  const MetricName name{Words(op)};
  if (name.Has(" kl rewards ") || name.words == " kl penalty " ||
      name.words == " train kl penalty ")
    return true;
  const bool plain =
      name.words == " kl " || name.words == " train kl " || name.words == " critic kl ";
  return plain && !shares;
}

PolicyMetric PolicyMetricOf(std::string_view op, SeriesRole role) {
  const MetricName name{Words(op)};
  switch (role) {
    case SeriesRole::kMismatch:
      return LogProbabilities(name);
    case SeriesRole::kMismatchProbability:
      return Probabilities(name);
    case SeriesRole::kMismatchKl:
      return Divergence(name);
    case SeriesRole::kMismatchFactor:
      return Factor(name);
    case SeriesRole::kMismatchChiSquare:
      if (name.Ends(" seq ")) return OfThePast(10);
      return Mismatch(MismatchScale::kAbsolute, 1, 0.5, "verl's documentation");
    case SeriesRole::kImportanceRatio:
      return Weights(name);
    case SeriesRole::kReward:
      return Reward(name);
    case SeriesRole::kRewardSpread:
      return Spread(name);
    case SeriesRole::kEntropy:
      return {name.extreme() ? PolicyKind::kOther : PolicyKind::kEntropy};
    case SeriesRole::kReferenceKl:
      return {name.extreme() ? PolicyKind::kOther : PolicyKind::kReferenceKl};
    case SeriesRole::kClipShare:
      return {name.extreme() ? PolicyKind::kOther : PolicyKind::kClipShare};
    case SeriesRole::kTruncatedShare:
      return {name.Has(" aborted ratio ") ? PolicyKind::kOther : PolicyKind::kTruncatedShare};
    case SeriesRole::kStepKl:
      return {PolicyKind::kOther};
    case SeriesRole::kStaleness:
      return {IsAge(name) ? PolicyKind::kStaleness : PolicyKind::kOther};
    case SeriesRole::kLoss:
      return {PolicyKind::kPreferenceLoss};
    // These may be a KL term or an entropy that is logged as a loss (verl, slime, OpenRLHF).
    case SeriesRole::kAuxiliaryLoss:
      if (name.Ends(" kl loss ")) return {PolicyKind::kReferenceKl};
      if (name.Ends(" entropy loss ")) return {PolicyKind::kEntropy};
      return {};
    case SeriesRole::kNone:
      if (name.Ends(" kl coef ") || name.Ends(" kl beta ")) return {PolicyKind::kKlCoefficient};
      if (SpreadOfAdvantages(name)) return {PolicyKind::kRewardSpread};
      if (ShareOfMixedGroups(name)) return {PolicyKind::kMixedShare};
      return {};
    default:
      return {};
  }
}

}  // namespace plumbline::analysis
