#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/metrics/metrics.h"
#include "analysis/role/role.h"
#include "base/archive.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/metric-truth

A number that the trainer logs (loss, gradient norm, learning rate, tokens) differs by one factor from the value that `run.watch` measured.

**Why.** Runs are steered by their logged numbers. Within one year 6 frameworks logged a wrong gradient norm (8 times too large on 8 shards, or
divided by the root of their number). A clip at 1.0 that is set by such a log cuts every step, or none.

**Bad.** `grad_norm is 0.500 times the norm before the clip in 12 of 12 logged steps (1.21 for 2.42 in step 119): 1 / 2 ranks`

**Good.** The measured value of the step, of its neighbours, or the mean since the last logged one, with up to three digits less.

**How to fix it.**
- Gradient norm: log what `torch.nn.utils.clip_grad_norm_` returns, once, after the reduction over ranks.
- Loss: log the mean over the micro-batches of the step, before the division by their number, or multiply it again.
- Tokens: count labels that are not ignored, once per step, over all ranks.
- If the factor is a definition that you want (a sum, another unit): suppress the finding.

**What it checks.** Numbers that the trainer gives to `run.scalar`, to Weights & Biases, to TensorBoard's `SummaryWriter`, or that Hugging Face's
Trainer logs with the callback (`logged/NAME`, at most 16 series whose name has a role), against the series of `run.watch`. A
logged number is right if it is, within 0.4 % and its last printed digit, the measured value of its step, of the step before or after, or the mean
over the steps since the last logged number; of its rank, or over all ranks. From 8 logged
steps on, and over the newest 32 (of light steps one in 16 is compared), nine in ten must agree with one of these. Otherwise:
- *One factor* times a measured value, that varies by 2 % at least: a warning if the factor is the number of micro-batches or of ranks, its inverse,
  for a norm also its root, or the loss scale that a scaler held. Else a note, because it may be a definition, with 32 logged values or over 256 steps, and a measured one
  that varies by 10 %; factors of 2 and 1/2 of a loss, a rate or tokens are notes too.
- *After the clip*: the logged norm is the measured one, but never above one constant: a note.

**Strength.** `bounded`: the factor is the same in all these steps, to 0.4 %. A note on a factor is `heuristic`.

**Inconclusive when** fewer than 8 logged values have a measured one (`few-steps`), the log prints too few digits (`few-digits`), the measured values do not vary (`alike`), the logged values
are neither equal nor one factor apart, because they are smoothed, of other data or of a part of the loss (`unrelated`), several
parameter groups have rates of their own (`several-groups`), or a logged loss is the mean over the micro-batches of what backward got, which is
right only if they are not divided by their number (`mean-of-passes`).

**What it cannot see.** Numbers that are logged in no such way; a wrong norm of shards, if each rank clips by it: `run.watch` measures that
of its own rank.

**Cost.** One scalar for each logged value; where steps are light, at most one in 64 steps.

**Sources.** Public issues on gradient norms of Megatron-LM, DeepSpeed and torchtitan, 2024 and 2025; the comparison is our own.
)page";

constexpr RuleInfo kInfo = {"health/metric-truth",
                            "a logged number is not the measured one",
                            v1::LEVEL_WARNING,
                            "0.2.0",
                            kPage,
                            {}};

constexpr std::string_view kLoggedPrefix = "logged/", kMeasuredPrefix = "measured/";
constexpr double kVaried = 0.1;    // relative range of measured values for a note
constexpr int64_t kLasting = 256;  // steps
constexpr std::string_view kScaleOp = "loss_scale";
constexpr std::string_view kOtherRate = "lr.1";  // of the second parameter group
constexpr std::string_view kEveryOp = "logged/.every", kPassesOp = "logged/.passes";

struct MeasuredSeries {
  std::string_view name;
  SeriesRole role;
  const char* what;  // the measured value, in words
};
constexpr MeasuredSeries kMeasured[] = {
    {"loss", SeriesRole::kLoss, "the loss that backward got"},
    {"grad_norm", SeriesRole::kGradientNorm, "the gradient's norm before the clip"},
    {"lr", SeriesRole::kRate, "the learning rate that the optimizer held"},
    {"tokens", SeriesRole::kTokens, "the tokens that the model got"},
};

const MeasuredSeries* MeasuredNamed(std::string_view op) {
  if (op.starts_with(kMeasuredPrefix)) op.remove_prefix(kMeasuredPrefix.size());
  for (const MeasuredSeries& one : kMeasured)
    if (one.name == op) return &one;
  return nullptr;
}

class MetricTruth : public ScalarRule {
 public:
  explicit MetricTruth(const Options& options) : roles_(options.roles()) {}

  bool ReadsScalar(const v1::Site& site) const override {
    const std::string_view op = site.op();
    return op.starts_with(kLoggedPrefix) || MeasuredNamed(op) != nullptr || op == kOtherRate ||
           op == kScaleOp;
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    const std::string_view op = step.site.op();
    if (!ReadsScalar(step.site)) return;
    if (op == kScaleOp) return TakeScales(step);
    if (!begun_ && op.starts_with(kLoggedPrefix)) begun_ = step.step;
    if (!begun_) return;
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      numbers_.ranks = std::max<double>(numbers_.ranks, item.source->world_size());
      TakeValue(op, step.step, item.source->rank(), item.evidence->scalar().value());
    }
  }

  const void* judges_apart() const override { return this; }
  // Before a number is logged there is nothing to compare, and no state.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    const bool logged =
        begun_ ||
        std::any_of(rows.columns.begin(), rows.columns.end(), [](const ScalarColumn& column) {
          const std::string& op = column.any().site.op();
          return op.starts_with(kLoggedPrefix) || op == kScaleOp;
        });
    return logged ? 0 : rows.size() - first;
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    if (const auto other = open_.find(std::string(kOtherRate)); other != open_.end()) {
      groups_ |= other->second != open_["lr"];
      open_.erase(other);
    }
    for (const auto& [name, values] : open_) {
      double sum = 0;
      for (const double value : values) sum += value;
      over_ranks_[name].Take(step.step, sum / static_cast<double>(values.size()));
    }
    open_.clear();
    Compare(step.step, &out);
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    Compare(INT64_MAX, &out);
    for (const auto& [key, metric] : metrics_) {
      if (metric.reported) continue;
      v1::Verdict verdict = AtEnd(key, metric);
      SetPlace(verdict, "", key.second, metric.first, metric.last,
               std::vector<uint32_t>{key.first});
      out.Add(std::move(verdict));
    }
  }

  // open_ is not stored, because it is empty between steps.
  void Persist(Archive& archive) override {
    archive.Version(2, 2);
    archive(begun_, groups_, measured_, over_ranks_, metrics_, waiting_, every_, numbers_.ranks,
            numbers_.passes, numbers_.scales);
  }

 private:
  using Key = std::pair<uint32_t, std::string>;  // rank, logged name
  struct Metric {
    analysis::LoggedMetric own, over_ranks;
    bool reported = false;
    int64_t first = INT64_MAX, last = 0;
    void Persist(Archive& a) { a(own, over_ranks, reported, first, last); }
  };
  struct Logged {
    Key key;
    int64_t step = 0, every = 1;
    double value = 0;
    void Persist(Archive& a) { a(key.first, key.second, step, every, value); }
  };
  static constexpr size_t kMostMetrics = 1 << 14;
  static constexpr uint32_t kMostRanks = 64;  // whose values are compared
  static constexpr size_t kMostScales = 64;

  void TakeScales(const SiteStep& step) {
    for (const Item& item : step.items) {
      if (item.evidence->has_scalar() && numbers_.scales.size() < kMostScales)
        numbers_.scales.insert(item.evidence->scalar().value());
    }
  }

  void TakeValue(std::string_view op, int64_t step, uint32_t rank, double value) {
    if (const MeasuredSeries* of = MeasuredNamed(op); of != nullptr) {
      open_[std::string(of->name)].push_back(value);
      if (rank < kMostRanks) measured_[{rank, std::string(of->name)}].Take(step, value);
    } else if (op == kOtherRate) {
      open_[std::string(op)].push_back(value);
    } else if (op == kEveryOp) {
      every_[rank] = value;
    } else if (op == kPassesOp) {
      numbers_.passes = std::max(numbers_.passes, value);
    } else if (op.starts_with(kLoggedPrefix) && rank < kMostRanks && step != begun_) {
      const std::string name(op.substr(kLoggedPrefix.size()));
      if (SeriesOf(name) != nullptr) waiting_.push_back({{rank, name}, step, 1, value});
    }
  }

  const MeasuredSeries* SeriesOf(const std::string& name) const {
    const SeriesRole role = roles_.Of(name);
    for (const MeasuredSeries& one : kMeasured)
      if (one.role == role) return &one;
    return nullptr;
  }

  // Compares the numbers that were logged before `step`.
  void Compare(int64_t step, VerdictSink* out) {
    std::vector<Logged> later;
    for (Logged& logged : waiting_) {
      if (logged.step >= step) {
        if (const auto every = every_.find(logged.key.first); every != every_.end())
          logged.every = std::isfinite(every->second) ? static_cast<int64_t>(every->second) : 1;
        later.push_back(std::move(logged));
        continue;
      }
      if (!metrics_.contains(logged.key) && metrics_.size() >= kMostMetrics) continue;
      Metric& metric = metrics_[logged.key];
      metric.first = std::min(metric.first, logged.step);
      metric.last = std::max(metric.last, logged.step);
      const std::string name(SeriesOf(logged.key.second)->name);
      metric.own.Take(logged.step, logged.value, logged.every, measured_[{logged.key.first, name}]);
      metric.over_ranks.Take(logged.step, logged.value, logged.every, over_ranks_[name]);
      if (metric.reported) continue;
      if (std::optional<v1::Verdict> found = Found(logged.key, metric)) {
        metric.reported = true;
        out->Add(*std::move(found));
      }
    }
    waiting_ = std::move(later);
  }

  analysis::MetricVerdict VerdictOn(const Key& key, const Metric& metric) const {
    using analysis::MetricState;
    const bool may_stand = SeriesOf(key.second)->role == SeriesRole::kRate;
    const analysis::MetricVerdict own = metric.own.Judge(may_stand),
                                  all = metric.over_ranks.Judge(may_stand);
    if (own.state == MetricState::kEqual || all.state == MetricState::kEqual)
      return own.state == MetricState::kEqual ? own : all;
    return own.state == MetricState::kFactor || own.state == MetricState::kClipped ? own : all;
  }

  bool HasSeveralGroups(const Key& key) const {
    return groups_ && SeriesOf(key.second)->role == SeriesRole::kRate;
  }

  // backward() of k undivided micro-batches gets k times the mean, which is what a log should
  // state. If each is divided by k, the same number is k times too small.
  bool IsMeanOfPasses(const Key& key, const analysis::MetricVerdict& verdict) const {
    return verdict.state == analysis::MetricState::kFactor &&
           SeriesOf(key.second)->role == SeriesRole::kLoss && numbers_.passes > 1 &&
           std::fabs(verdict.factor * numbers_.passes - 1) <=
               2 * analysis::LoggedMetric::kTolerance;
  }

  std::optional<v1::Verdict> Found(const Key& key, const Metric& metric) const {
    using analysis::MetricState;
    const analysis::MetricVerdict verdict = VerdictOn(key, metric);
    if (HasSeveralGroups(key) || IsMeanOfPasses(key, verdict)) return std::nullopt;
    if (verdict.state == MetricState::kFactor) return FoundFactor(key, verdict);
    const bool norm = SeriesOf(key.second)->role == SeriesRole::kGradientNorm;
    if (verdict.state == MetricState::kClipped && norm) return FoundClipped(key, verdict);
    return std::nullopt;
  }

  // A factor that is none of the run's numbers is a note. It needs more points and more variation,
  // because a part of the loss is nearly proportional to it for some steps.
  std::optional<v1::Verdict> FoundFactor(const Key& key,
                                         const analysis::MetricVerdict& verdict) const {
    const SeriesRole role = SeriesOf(key.second)->role;
    const auto origin = analysis::OriginOf(verdict.factor, role, numbers_);
    const bool sure = origin && origin->sure;
    const bool varied = role == SeriesRole::kRate || verdict.range >= kVaried;
    const bool lasting = verdict.points >= analysis::LoggedMetric::kNewest ||
                         verdict.last - verdict.first >= kLasting;
    if (!sure && !(varied && lasting)) return std::nullopt;
    FindingBuilder found(sure ? v1::LEVEL_WARNING : v1::LEVEL_NOTE,
                         sure ? v1::STRENGTH_BOUNDED : v1::STRENGTH_HEURISTIC);
    const MeasuredSeries& of = *SeriesOf(key.second);
    found.Title("a logged number is one factor times the measured one")
        .Explain(absl::StrFormat(
            "%s is %.4g times %s in %d logged steps, %d to %d (%.6g for %.6g in step %d). %s",
            key.second, verdict.factor, of.what, verdict.points, verdict.first, verdict.last,
            verdict.logged, verdict.measured, verdict.last,
            sure ? absl::StrCat("The factor is ", origin->words, ".")
            : origin
                ? absl::StrCat("The factor is ", origin->words, ", or a definition of the trainer.")
                : "The factor may be a definition of the trainer."))
        .Cause(origin ? origin->cause : "constant-factor", sure ? 0.9 : 0.5)
        .Fix(sure ? FixOf(of)
                  : absl::StrCat("Do nothing if the factor is a definition (a sum, another unit). "
                                 "Otherwise: ",
                                 FixOf(of)))
        .Measured("logged / measured", verdict.factor)
        .Threshold(1, "factor of a logged number that is the measured one");
    return Placed(key, verdict, &found);
  }

  static v1::Verdict FoundClipped(const Key& key, const analysis::MetricVerdict& verdict) {
    FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_BOUNDED);
    found.Title("the logged gradient norm is the one after the clip")
        .Explain(absl::StrFormat(
            "%s is never above %.6g in %d logged steps, %d to %d, while the norm before the clip "
            "is larger (%.6g in step %d). A spike of the gradient does not show in it.",
            key.second, verdict.limit, verdict.points, verdict.first, verdict.last,
            verdict.measured, verdict.last))
        .Cause("after-clip", 0.95)
        .Fix("Log the value that the clip function returns: it is the norm before the clip.")
        .Measured("largest logged norm", verdict.limit)
        .Threshold(verdict.measured, "norm before the clip in the newest of these steps");
    return Placed(key, verdict, &found);
  }

  static v1::Verdict Placed(const Key& key, const analysis::MetricVerdict& verdict,
                            FindingBuilder* found) {
    found->Samples(verdict.points)
        .Witness("step", static_cast<double>(verdict.last))
        .Witness("logged", verdict.logged)
        .Witness("measured", verdict.measured)
        .At("", key.second, verdict.first, verdict.last, std::vector<uint32_t>{key.first});
    Put(*found->verdict().mutable_details(), "series", key.second);
    return found->Take();
  }

  static const char* FixOf(const MeasuredSeries& of) {
    switch (of.role) {
      case SeriesRole::kGradientNorm:
        return "Log what clip_grad_norm_ returns, once, after the reduction over ranks.";
      case SeriesRole::kLoss:
        return "Log the mean over the micro-batches and ranks of the step. If the loss was "
               "divided for backward(), multiply it again.";
      case SeriesRole::kRate:
        return "Log optimizer.param_groups[0]['lr'] as it is when the optimizer steps.";
      default:
        return "Count the tokens of the step once, over the ranks that the name promises.";
    }
  }

  v1::Verdict AtEnd(const Key& key, const Metric& metric) const {
    using analysis::MetricState;
    if (HasSeveralGroups(key))
      return Inconclusive(
          "several-groups: the optimizer has several parameter groups with rates of their own");
    const analysis::MetricVerdict verdict = VerdictOn(key, metric);
    if (IsMeanOfPasses(key, verdict)) {
      return Inconclusive(
          "mean-of-passes: the logged loss is the mean over the micro-batches of what backward "
          "got: "
          "right if they are not divided by their number, too small if they are");
    }
    switch (verdict.state) {
      case MetricState::kEqual:
        return Pass("the logged values are the measured ones");
      case MetricState::kAlike:
        return Inconclusive(
            "alike: the measured values do not vary, so that a factor shows nothing");
      case MetricState::kCoarse:
        return Inconclusive("few-digits: half a unit of the last logged digit is above 2 %");
      case MetricState::kFew:
        return Inconclusive("few-steps: fewer than 8 logged values have a measured one");
      default:
        return Inconclusive(
            "unrelated: the logged values are neither the measured ones nor one factor times "
            "them; they may be smoothed, of other data, or a part of the loss");
    }
  }

  const SeriesRoles roles_;  // stated by the user
  // The step of the first logged number. Measured values are kept from then on, so this number
  // itself is not compared.
  std::optional<int64_t> begun_;
  bool groups_ = false;  // whether two parameter groups have different rates
  analysis::RunNumbers numbers_;
  std::map<Key, analysis::MeasuredValues> measured_;  // by rank and name
  std::map<std::string, analysis::MeasuredValues> over_ranks_;
  std::map<Key, Metric> metrics_;
  std::vector<Logged> waiting_;       // logged in the newest step
  std::map<uint32_t, double> every_;  // by rank: steps since its last logged number
  // Values of the open step over the ranks, by the name of their series.
  std::map<std::string, std::vector<double>> open_;
};

}  // namespace

CatalogueEntry metric_truth() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<MetricTruth>(options);
          }};
}

}  // namespace plumbline::rules
