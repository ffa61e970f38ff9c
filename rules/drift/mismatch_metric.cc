#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/frame/frame.h"
#include "analysis/policy/policy.h"
#include "rules/bases/collapse_words.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# drift/mismatch-metric

A trainer logs that its inference engine gives the same tokens other probabilities than it gives itself.

**Why.** A policy gradient weights each token by the probability with which it was drawn. If the engine drew it with another probability, the gradient is biased, always in the same
direction, and the reward falls after 100 to 1,000 steps. Frameworks print the difference in every step. The log shows it for hours before the reward falls.

**Bad.** `rollout_corr/k3_kl is 0.61 in step 5, above 0.1 (verl's documentation) from step 1 on`

**Good.** 2e-7 with fp32 on both sides, 0.003 to 0.02 with a bf16 engine, up to 0.05 with fp8; single spikes.

**How to fix it.**
- From the first step on: compare settings of the two sides. Temperature: vLLM `logprobs_mode="processed_logprobs"`; top-p and top-k 1 and off; the chat template; dtype (`float16` on both
  sides halves the difference of bf16), an fp32 output layer; an adapter that is not merged.
- From a later step on: weights that did not arrive (`drift/missed-sync`), or a policy that leaves the range in which the engine's precision suffices.
- In between: correct by importance weights. TRL `vllm_importance_sampling_correction=True`, verl `algorithm.rollout_correction`, slime `--use-tis`.
- Save rollouts with both log-probabilities and give them to `plumb audit`: it names the cause.

**What it checks.** Series of a train/inference mismatch, known by their names (docs/scalars.md), in five points in a row:

| metric | names | warning |
|---|---|---|
| mean of the absolute difference of log-probabilities | TRL `sampling/sampling_logp_difference/mean`, slime `train_rollout_logprob_abs_diff`, open-instruct `vllm_vs_local_logprob_diff_mean` | above 0.1 |
| mean difference of probabilities | verl `training/rollout_probs_diff_mean` | above 0.05 |
| a KL divergence | verl, ms-swift `rollout_corr/kl`, `k3_kl`; OpenRLHF `vllm_kl`; prime-rl `mismatch_kl/*`; Tinker `kl_sample_train_*` | above 0.1 |
| the same in NeMo-RL | `gen_kl_error`, `policy_kl_error`, `js_divergence_error` | above 0.001 |
| mean of e^difference | NeMo-RL `token_mult_prob_error` | above 1.05 |
| χ² of tokens | verl `rollout_corr/chi2_token` | above 1 |
| mean importance weight | `sampling/importance_sampling_ratio/mean`, `rollout_is_mean`, `is_weight_mean`, `ois` | outside 0.5 to 2; or at one side by 0.35 e-folds in 20 points in a row |
| effective sample size | verl `rollout_is_eff_sample_size` | below 0.3 |

Each of them, and the maxima, is also compared with its own past: ten times the median of the points before, and above a floor at which the difference is harmless (a fifth of the
limit or less). Several series that show one cause are one finding. An error at ten times the limit, in five points in a row; and if the mean reward fell as well
(`health/rl-collapse` has the limits). A mean importance weight counts only if it is 0, or if no mean over tokens is logged that is within its limit: of whole
sequences it is far from 1 in healthy runs, too (TRL's default sets weights above 3 to 0, and the mean of long answers is 0.3 to 0.5).

**Strength.** `statistical`, `measured`: of 1,980 simulated healthy runs of 60 to 300 points (log-normal noise, single spikes of up to three points, growth by a factor of 3, weights over whole
sequences) none has a finding, so at most 0.15 % of runs at 95 % confidence. A ratio at one side, or ten times the own past, is found in the point in which the row is full.

**Inconclusive when** a series has under five points (`few-points`).

**What it cannot see.** A bias below the limits; whether noise or bias: the log holds one number per step. NaN is reported by `health/loss-non-finite`. A mean weight over whole sequences that is
truncated may lie below 0.7 in a run that is as its user wants it: if no other mismatch is logged, set the role of that series to none.

**Cost.** 2 KB a series.

**Sources.** Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training", 2025; documentation of verl (`rollout_corr`) and NeMo-RL; tests of slime.
)page";

constexpr RuleInfo kInfo = {"drift/mismatch-metric",
                            "the engine and the trainer disagree in a logged metric",
                            v1::LEVEL_ERROR,
                            "0.2.0",
                            kPage,
                            {}};

// 0 of 1,980 healthy runs alarmed: below 3 / 1980 at 95 %.
constexpr double kMismatchAlarms = 1.5e-3;

using Event = MismatchCourse::Event;

struct MismatchSeries {
  MismatchCourse course;
  Event worst = Event::kNone;
  int64_t onset = 0;    // onset of the worst event
  double measured = 0;  // the value when the worst event began
  double past = NAN;    // the median before the event
  int64_t step_first = 0, step_last = 0;
  uint32_t rank = 0;
  bool found() const { return worst != Event::kNone; }
  bool error() const { return worst == Event::kAboveTenLimits; }
  void Persist(Archive& a) { a(course, worst, onset, measured, past, step_first, step_last, rank); }
};

// Orders events by their certainty: above ten limits, above a limit, a steady ratio, above the
// past.
int Weight(Event event) {
  switch (event) {
    case Event::kAboveTenLimits:
      return 4;
    case Event::kAboveLimit:
      return 3;
    case Event::kSteady:
      return 2;
    case Event::kAbovePast:
      return 1;
    case Event::kNone:
      return 0;
  }
  return 0;
}

class MismatchMetricRule : public ScalarRule {
 public:
  explicit MismatchMetricRule(const Options& options) : roles_(options.roles()) {}

  bool ReadsScalar(const v1::Site& site) const override {
    const PolicyKind kind = MetricOf(site.op()).kind;
    return kind == PolicyKind::kMismatch || kind == PolicyKind::kReward;
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    const PolicyMetric& metric = known_.Of(step, [&] { return MetricOf(step.site.op()); });
    if (metric.kind != PolicyKind::kMismatch && metric.kind != PolicyKind::kReward) return;
    const auto item = std::find_if(step.items.begin(), step.items.end(),
                                   [](const Item& any) { return any.evidence->has_scalar(); });
    if (item == step.items.end()) return;
    if (metric.kind == PolicyKind::kReward)
      return TakeReward(step, item->evidence->scalar().value());
    const auto [place, fresh] = series_.try_emplace({step.role, step.site.layer(), step.site.op()});
    MismatchSeries& series = place->second;
    if (fresh) series.step_first = step.step;
    series.step_last = std::max(series.step_last, step.step);
    series.rank = item->source->rank();
    const double past = series.course.past(), value = item->evidence->scalar().value();
    const Event event = series.course.Take(metric, step.step, value);
    if (Weight(event) <= Weight(series.worst)) return;
    series.worst = event;
    series.onset = series.course.onset(event);
    series.measured = value;
    series.past = past;
    news_ = true;
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& /*step*/, VerdictSink& out) override {
    if (!std::exchange(news_, false)) return;
    const auto lead = Leader();
    if (lead == series_.end() || !Counts(*lead)) return;
    // Reports once. Other series have the same cause, so only a higher level is reported again.
    const bool error = IsError(lead->second);
    if (!leader_ || (error && !error_)) {
      leader_ = lead->first;
      error_ = error;
      out.Add(Found(*lead));
    }
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    if (leader_) out.Add(Found(*series_.find(*leader_)));
    for (const auto& any : series_) {
      const auto& [key, series] = any;
      if (Counts(any)) continue;
      v1::Verdict verdict =
          series.course.points() < MismatchCourse::kInARow
              ? Inconclusive(absl::StrFormat("few-points: %d points, %d in a row are needed",
                                             series.course.points(), MismatchCourse::kInARow))
              : Pass("it stays within its limit and near its own past");
      SetPlace(verdict, std::get<1>(key), std::get<2>(key), series.step_first, series.step_last,
               std::vector<uint32_t>{series.rank});
      out.Add(std::move(verdict));
    }
  }

  // news_ is false between steps. known_ is recomputed after a restore.
  void Persist(Archive& archive) override {
    archive.Version(2, 2);  // 2: rewards
    archive(series_, rewards_, leader_, error_);
    if (archive.reading()) known_ = {};
  }

 private:
  using Key = std::tuple<v1::Role, std::string, std::string>;  // role, layer, op
  using Map = std::map<Key, MismatchSeries>;

  PolicyMetric MetricOf(const std::string& op) const { return PolicyMetricOf(op, roles_.Of(op)); }

  void TakeReward(const SiteStep& step, double value) {
    RewardCourse& reward = rewards_[{step.role, step.site.layer(), step.site.op()}];
    const bool fell = reward.fell();
    reward.Take(step.step, value);
    news_ = news_ || (leader_ && !fell && reward.fell());
  }

  // Returns the reward that fell, if there is one. Rewards of single functions do not count.
  const std::pair<const Key, RewardCourse>* FallenReward() const {
    const auto fallen = std::find_if(rewards_.begin(), rewards_.end(), [](const auto& any) {
      return any.second.fell() && !IsPartOfReward(std::get<2>(any.first));
    });
    return fallen == rewards_.end() ? nullptr : &*fallen;
  }

  bool IsError(const MismatchSeries& series) const {
    return series.error() || FallenReward() != nullptr;
  }

  // Returns true if the condition must be reported. Small differences of tokens move a mean weight
  // of whole sequences far from 1: TRL sets weights above 3 to 0, so their mean is below 0.5. So if
  // a mean over tokens is known and within its limit, returns false for means over sequences.
  bool Counts(const Map::value_type& any) const {
    if (!any.second.found()) return false;
    const bool weight = MetricOf(std::get<2>(any.first)).scale == MismatchScale::kLogRatio;
    return !weight || any.second.measured == 0 || !TokensAgree();
  }

  bool TokensAgree() const {
    bool known = false;
    for (const auto& [key, series] : series_) {
      const PolicyMetric metric = MetricOf(std::get<2>(key));
      if (metric.scale != MismatchScale::kAbsolute || metric.limit == 0) continue;
      if (series.found()) return false;
      known = known || series.course.points() >= MismatchCourse::kInARow;
    }
    return known;
  }

  // Returns the series with the most certain condition. If several are equal, returns the earliest.
  Map::const_iterator Leader() const {
    const auto weight = [&](const Map::value_type& any) {
      return Counts(any) ? Weight(any.second.worst) : 0;
    };
    return std::max_element(series_.begin(), series_.end(), [&](const auto& a, const auto& b) {
      const int x = weight(a), y = weight(b);
      return x < y || (x == y && a.second.onset > b.second.onset);
    });
  }

  v1::Verdict Found(const Map::value_type& lead) const {
    const auto& [key, series] = lead;
    const std::string& op = std::get<2>(key);
    const PolicyMetric metric = MetricOf(op);
    const bool from_the_start = series.onset == series.step_first;
    const std::vector<std::string> others = Others(lead);
    const auto* const reward = FallenReward();
    FindingBuilder found(IsError(series) ? v1::LEVEL_ERROR : v1::LEVEL_WARNING,
                         v1::STRENGTH_STATISTICAL);
    found.Title(kInfo.title)
        .Explain(absl::StrCat(
            What(op, metric, series), OthersText(others),
            " The engine and the trainer give the same tokens different "
            "probabilities, and the gradient is biased by it.",
            reward == nullptr ? "" : RewardText(std::get<2>(reward->first), reward->second)))
        .Cause(from_the_start ? "different-from-the-start" : "parted-later", 0.8)
        .Measured(op, series.measured)
        .Threshold(ThresholdOf(metric, series), Source(metric, series))
        .Samples(series.course.points())
        .FalseAlarm("measured", kMismatchAlarms)
        .Witness("step", static_cast<double>(series.onset))
        .Witness("value", series.measured)
        .Fix(from_the_start
                 ? "Compare what both sides are set to: temperature and top-p, processed or raw "
                   "log-probabilities (vLLM logprobs_mode=\"processed_logprobs\"), dtype, chat "
                   "template, an adapter that is not merged. Save rollouts with both "
                   "log-probabilities for plumb audit, which names the cause."
                 : "Look whether the engine got the weights of that step, then whether entropy or "
                   "response length changed there. Save rollouts with both log-probabilities for "
                   "plumb audit, which names the cause.")
        .At(std::get<1>(key), op, series.onset, std::max(series.step_last, series.onset),
            std::vector<uint32_t>{series.rank});
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    Put(details, "series", op);
    Put(details, "step", static_cast<double>(series.onset));
    if (!others.empty()) Put(details, "also", absl::StrJoin(others, ", "));
    return found.Take();
  }

  static double ThresholdOf(const PolicyMetric& metric, const MismatchSeries& series) {
    double distance = metric.limit;
    if (series.worst == Event::kAboveTenLimits) distance *= MismatchCourse::kTimes;
    if (series.worst == Event::kSteady) distance = metric.floor;
    if (series.worst == Event::kAbovePast) distance = MismatchCourse::kTimes * series.past;
    switch (metric.scale) {
      case MismatchScale::kFactor:
        return 1 + distance;
      case MismatchScale::kLogRatio:
        return std::exp(series.measured < 1 ? -distance : distance);
      case MismatchScale::kShare:
        return 1 - distance;
      case MismatchScale::kSample:
        return 1 / distance;
      case MismatchScale::kAbsolute:
        return distance;
    }
    return distance;
  }

  static std::string Source(const PolicyMetric& metric, const MismatchSeries& series) {
    switch (series.worst) {
      case Event::kAbovePast:
        return "ten times its own median before";
      case Event::kSteady:
        return "customary: 20 points in a row at one side of 1";
      case Event::kAboveTenLimits:
        return absl::StrCat("ten times the limit: ", metric.source);
      default:
        return metric.source;
    }
  }

  static std::string What(const std::string& op, const PolicyMetric& metric,
                          const MismatchSeries& series) {
    const double limit = ThresholdOf(metric, series);
    const char* side = series.measured < limit ? "below" : "above";
    return absl::StrFormat("%s is %.4g; from step %d on it is %s %.4g (%s).", op, series.measured,
                           series.onset, side, limit, Source(metric, series));
  }

  // Returns the other series that have a condition, at most eight.
  std::vector<std::string> Others(const Map::value_type& lead) const {
    constexpr size_t kNamed = 8;
    std::vector<std::string> others;
    for (const auto& any : series_) {
      const Key& key = any.first;
      if (Counts(any) && key != lead.first && others.size() < kNamed)
        others.push_back(std::get<2>(key));
    }
    return others;
  }

  static std::string OthersText(const std::vector<std::string>& others) {
    if (others.empty()) return "";
    return absl::StrCat(" So ", others.size() == 1 ? "does " : "do ", absl::StrJoin(others, ", "),
                        ".");
  }

  const SeriesRoles roles_;  // roles that the user assigned
  Map series_;
  std::map<Key, RewardCourse> rewards_;
  std::optional<Key> leader_;  // series of the finding that was reported
  bool error_ = false;         // true if the reported finding is an error
  bool news_ = false;          // a series has a new condition since the last step
  SiteMemo<PolicyMetric> known_;
};

}  // namespace

CatalogueEntry mismatch_metric() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<MismatchMetricRule>(options);
          }};
}

}  // namespace plumbline::rules
