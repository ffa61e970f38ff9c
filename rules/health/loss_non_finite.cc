#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/collective/case/case.h"
#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/loss-non-finite

A loss is NaN or infinite.

**Why.** One NaN in a loss makes every gradient of that step NaN, and an optimizer without a check writes it into all
weights: from the next step on the model is lost, and each hour until somebody looks is paid for. Adam keeps it, too: its
second moment is NaN from then on, and a checkpoint of such a run is of no use, 1 step later or 10,000.

**What it checks.** Each series with the word `loss` in its name (`lm loss`, `train_loss`, `val/loss`, `aux_loss`,
`z_loss`; not `loss_scale`, `loss_weight` and the like), every value of every rank. The first value that is NaN or
infinite is told as its step closes, with the ranks that have one in that step; the others of the same attempt of the run
are counted, and told again each time their number has doubled.

**Bad.** `lm loss: nan` at iteration 4,210, after 2.31 in the one before.

**Good.** An iteration that was skipped because of the loss scale has no loss: that is no NaN, and Megatron-LM's
log says so (`number of skipped iterations`).

**How to fix it.**
- Go back to the last checkpoint whose weights and optimizer moments are finite (`plumb audit` of it), and skip that
  batch.
- `precision/non-finite` names the first tensor that was: a softmax over a row that is masked whole, a logarithm of 0,
  an fp16 activation over 65,504.
- Make the trainer stop or skip: Megatron-LM `--check-for-nan-in-loss-and-grad`, OLMo's check of the loss.

**Strength.** `proved`: the value is there to be read. An error.

**Inconclusive when** steps were closed over a rank that had reported this loss before: what it had to say is not known.

**What it cannot see.** What is not logged: a mean over ranks that leaves NaN out, a value that was clipped.

**Cost.** A comparison a value.

**Sources.** Amazon SageMaker Debugger, rule `LossNotDecreasing` and `NaN` checks of tensors; Megatron-LM
(`rerun_state_machine`), whose check ends the run: we tell, and go on judging what follows.
)page";

constexpr RuleInfo kInfo = {
    "health/loss-non-finite", "the loss is NaN or infinite", v1::LEVEL_ERROR, "0.1.0", kPage, {}};

bool IsLoss(SeriesRole role) {
  return role == SeriesRole::kLoss || role == SeriesRole::kEvaluationLoss ||
         role == SeriesRole::kAuxiliaryLoss;
}

// One series, over its ranks.
struct Series {
  uint32_t attempt = 0;
  uint64_t values = 0;
  uint64_t not_finite = 0;  // of the attempt
  uint64_t told_at = 0;     // so many were told, of the attempt
  bool found = false;
  int64_t onset = 0;         // of the attempt
  std::string kind;          // there: "nan" or "inf"
  double before = NAN;       // the last finite value before it
  uint64_t closed_over = 0;  // steps
  std::set<uint32_t> ranks;
  int64_t step_first = 0, step_last = 0;
  int64_t newest_bad = 0;           // step of the attempt
  std::vector<uint32_t> bad_ranks;  // there
  void Persist(Archive& a) {
    a(attempt, values, not_finite, told_at, found, onset, kind, before, closed_over, ranks,
      step_first, step_last, newest_bad, bad_ranks);
  }
};

class LossNonFinite : public Rule {
 public:
  explicit LossNonFinite(const Options& options) : said_(options.roles()) {}
  bool ReadsScalar(const v1::Site& site) const override { return IsLoss(said_.Of(site.op())); }
  // A value alone says it: nobody else's is needed.
  bool judges_late() const override { return true; }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    if (step.items.empty() || !step.items.front().evidence->has_scalar()) return;
    Known& known = KnownOf(step);
    if (!known.loss) return;
    const bool fresh = known.series == nullptr && IsFresh(step, known);
    Series& series = *known.series;
    if (fresh) series.step_first = step.step;
    if (fresh || series.attempt != step.attempt) Begin(step.attempt, series);
    std::vector<uint32_t> ranks = Take(step, series);
    if (ranks.empty()) return;
    series.newest_bad = step.step;
    series.bad_ranks = std::move(ranks);
    if (series.not_finite < 2 * series.told_at) return;
    series.told_at = series.not_finite;
    series.found = true;
    out.Add(Found(step.site.layer(), step.site.op(), series));
  }

  const void* judges_apart() const override { return this; }
  // Losses that are numbers, of series that are known.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    for (const ScalarColumn& column : rows.columns) {
      const Series* const series = KnownOf(column.any()).series;
      if (series == nullptr || series->attempt != rows.end.attempt) return 0;
    }
    const size_t taken = rows.Finite(first);
    if (taken == 0) return 0;
    for (const ScalarColumn& column : rows.columns) {
      Series& series = *KnownOf(column.any()).series;
      series.step_first = std::min(series.step_first, rows.steps[first]);
      series.step_last = std::max(series.step_last, rows.steps[first + taken - 1]);
      series.values += taken;
      if (series.ranks.size() < kMostRanks) series.ranks.insert(column.source().rank());
      if (series.not_finite == 0) series.before = column.value(first + taken - 1);
    }
    return taken;
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, series] : series_) {
      // How many they were in the end.
      if (series.not_finite > series.told_at)
        out.Add(Found(std::get<1>(key), std::get<2>(key), series));
      if (series.found) continue;
      v1::Verdict verdict = Rest(series);
      Put(*verdict.mutable_details(), "series", std::get<2>(key));
      Put(*verdict.mutable_details(), "points", static_cast<double>(series.values));
      SetPlace(verdict, std::get<1>(key), std::get<2>(key), series.step_first, series.step_last,
               series.ranks);
      out.Add(std::move(verdict));
    }
  }

  // roles_ and known_ are found again.
  void Persist(Archive& archive) override {
    archive.Version(2, 2);
    archive(series_);
    if (archive.reading()) known_ = {};
  }

 private:
  struct Known {
    bool loss = false;
    Series* series = nullptr;  // once there is one
  };

  Known& KnownOf(const SiteStep& step) {
    return known_.Of(step, [&] { return Known{IsLossName(step.site.op()), nullptr}; });
  }

  bool IsFresh(const SiteStep& step, Known& known) {
    const auto [entry, fresh] = series_.try_emplace({step.role, step.site.layer(), step.site.op()});
    known.series = &entry->second;
    return fresh;
  }

  bool IsLossName(const std::string& name) {
    constexpr size_t kMost = 4096;
    if (roles_.size() > kMost) roles_.clear();
    const auto [entry, fresh] = roles_.try_emplace(name, false);
    if (fresh) entry->second = IsLoss(said_.Of(name));
    return entry->second;
  }

  static void Begin(uint32_t attempt, Series& series) {
    series.attempt = attempt;
    series.not_finite = series.told_at = 0;
    series.before = NAN;
  }

  // The ranks that have one in this step.
  static std::vector<uint32_t> Take(const SiteStep& step, Series& series) {
    series.step_first = std::min(series.step_first, step.step);
    series.step_last = std::max(series.step_last, step.step);
    const bool over = std::any_of(step.missing_ranks.begin(), step.missing_ranks.end(),
                                  [&](uint32_t rank) { return series.ranks.contains(rank); });
    if (over && !step.late) ++series.closed_over;
    std::vector<uint32_t> ranks;
    double finite = NAN;
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      const double value = item.evidence->scalar().value();
      ++series.values;
      const uint32_t rank = item.source->rank();
      if (series.ranks.size() < kMostRanks) series.ranks.insert(rank);
      if (std::isfinite(value)) {
        finite = value;
        continue;
      }
      if (series.not_finite++ == 0) {
        series.onset = step.step;
        series.kind = std::isnan(value) ? "nan" : "inf";
      }
      if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);
    }
    if (series.not_finite == 0) series.before = finite;
    return ranks;
  }

  static v1::Verdict Found(const std::string& layer, const std::string& name,
                           const Series& series) {
    const std::vector<uint32_t>& ranks = series.bad_ranks;
    const int64_t newest = series.newest_bad;
    const std::string what = series.kind == "nan" ? "NaN" : "infinite";
    std::string text = absl::StrFormat("%s is %s in step %d", name, what, series.onset);
    if (series.onset == newest) absl::StrAppend(&text, ", on ", RankWords(ranks));
    if (std::isfinite(series.before))
      absl::StrAppendFormat(&text, "; it was %.6g before", series.before);
    if (series.onset != newest)
      absl::StrAppendFormat(&text, ". Up to step %d %d values were not finite", newest,
                            series.not_finite);
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title(series.kind == "nan" ? "the loss is NaN" : "the loss is infinite")
        .Explain(text + ".")
        .Cause(series.kind, 1)
        .Measured("values that are not finite", static_cast<double>(series.not_finite), "values")
        .Threshold(0, "a loss is a number")
        .Samples(series.values)
        .Fix(
            "Go back to the last checkpoint whose weights and moments are finite and skip the "
            "batch; precision/non-finite names the first tensor that was not.")
        .Witness("step", static_cast<double>(series.onset))
        .Witness("value", series.kind)
        .At(layer, name, series.onset, std::max(series.onset, newest), ranks);
    if (std::isfinite(series.before)) found.Witness("value_before", series.before);
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    Put(details, "series", name);
    Put(details, "step", static_cast<double>(series.onset));
    Put(details, "kind", series.kind);
    return found.Take();
  }

  static v1::Verdict Rest(const Series& series) {
    if (series.closed_over == 0) return Pass("every value was finite");
    return Inconclusive(absl::StrCat("rank-missing: ", series.closed_over,
                                     " steps were closed over a rank that reports this loss"));
  }

  static constexpr size_t kMostRanks = 1024;  // named

  std::map<std::tuple<v1::Role, std::string, std::string>, Series> series_;
  const SeriesRoles said_;  // by the user
  std::unordered_map<std::string, bool> roles_;
  SiteMemo<Known> known_;
};

}  // namespace

CatalogueEntry loss_non_finite() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<LossNonFinite>(options);
          }};
}

}  // namespace plumbline::rules
