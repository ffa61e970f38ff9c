#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "rules/bases/companions.h"
#include "rules/bases/speed_names.h"
#include "rules/bases/speed_series.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/mfu

A logged utilisation is impossible, or differs from the one that its own numbers give, or fell.

**Why.** MFU decides about purchases and tuning, and its usual errors are factors of two: an H100 has 989 TFLOP/s in bf16 and 1,979 in fp8 or in bf16 with sparsity, so a run at 40 % is logged as 20 % with the data sheet's larger number; a mixture of 671 B parameters of which a token uses 37 B reads 18 times too high by the total.

**Bad.** `mfu is 1.31 in step 40: more than 100 % of the peak`; `mfu is half of the value computed from 12,000 tokens/s: a peak with sparsity, or of half the width`; `mfu fell from .41 to .33 at step 5,120`.

**Good.** `mfu is .41 (median of 640 points)`.

**How to fix it.** The dense peak of the dtype that the matrix products use; active parameters; the attention's term with the sequence length that is trained on. After a drop look at what changed at that step: a node, clocks (`nvidia-smi -q -d CLOCK`), a loader, a longer sequence; `performance/straggler` and `idle-comb` on a trace of it.

**What it checks.** Series with the word `mfu` in their names, shares or per cent (by the name, else by what most values are).

- *Impossible*: a value above 1 (100 %).
- *Not its own facts*: if the options describe the model and the cluster, and a series `tokens_per_second` the speed of the whole job (`tokens_per_second_per_gpu`: of one GPU),

      MFU = tokens/s · (6·N + 12·L·H·Q·T) / (G · peak)

  with N the parameters that a token uses. A finding where this is above 1, or where the median of logged / computed over at least 8 steps differs from 1 by more than a tenth; a half and two are named as the wrong peak (sparsity, another dtype), total / active parameters as the total used for the active.
- *It fell*: the median of 64 points is a tenth or more below that of the 64 before, by six of their deviations, and so is each half of it.
- *It collapsed*: each of the newest 16 points is below half of the lowest but one of the 16 points before them, or of the 16 before these. The speed in tokens (a series of role `tokens-per-second`) is judged by this condition alone, in a run that logs no reward; it has no pass. If none is logged, so are samples, images, batches, iterations or TFLOPs a second and seconds or ms an iteration, at a quarter.
- *Other work.* If a length of sequences, a stage, a batch size or a number of GPUs changes within two points of a fall (64 for a drop), it is a note that names it.

**Strength.** `proved` where it is impossible, `bounded` where the options are assumed to be right, `statistical` for a drop, measured: of 2,000 simulated healthy series of 1,024 points (noise of 3 %, a dip to a half each 100 points, a drift of 3 % over the run) none alarmed, so at most 0.15 % do (95 %).

**Inconclusive when** a series has fewer than 8 points that are numbers.

**What it cannot see.** A wrong value that is not impossible, without the options; a drop that the trainer explains (a longer sequence, fewer GPUs): it assumes there is none; one that creeps, less than a tenth in 64 points.

**Cost.** 128 values a series.

**Sources.** Chowdhery et al., "PaLM", 2022, appendix B.
)page";

constexpr OptionInfo Fact(const char* name, const char* unit, const char* default_value = "0") {
  return {.name = name,
          .type = OptionInfo::Type::kNumber,
          .unit = unit,
          .default_value = default_value,
          .reason = "0: not declared, and MFU is not computed",
          .low = 0,
          .high = 1e18};
}

constexpr OptionInfo kOptions[] = {
    Fact("parameters", "of the model"), Fact("active", "parameters that a token uses; 0: all"),
    Fact("layers", "with attention"),   Fact("heads", "of a layer"),
    Fact("head_size", "elements"),      Fact("sequence", "tokens"),
    Fact("gpus", "of the job"),         Fact("peak_tflops", "of one GPU, dense, in the dtype used"),
};

constexpr RuleInfo kInfo = {"performance/mfu",
                            "the logged MFU is impossible, wrong, or fell",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr size_t kFewestPoints = 8;
constexpr double kNear = 0.1;
constexpr double kFalseDrops = 0.0015;  // measured; the rule's page has the conditions
constexpr size_t kMostMfuSeries = 256;
constexpr double kMostSpeed = 1e15;
constexpr double kCollapseOfWork = 0.25;

class Mfu : public ScalarRule {
 public:
  explicit Mfu(const Options& options) : facts_(options), roles_(options.roles()) {}

  bool ReadsScalar(const v1::Site& site) const override {
    const SeriesRole role = roles_.Of(site.op());
    return NameOfMfu(site.op()).mfu || (facts_.reported() && NameOfMfu(site.op()).speed) ||
           role == SeriesRole::kTokensPerSecond || role == SeriesRole::kReward ||
           NameOfWork(site.op()).work || NameOfWork(site.op()).pace != Pace::kNone;
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    Known& known = KnownOf(step);
    // The value of the first rank that reports one is used for the job.
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      const double value = item.evidence->scalar().value();
      if (!(value >= 0) || !(value < kMostSpeed)) continue;
      const std::string& op = step.site.op();
      if (known.mfu) {
        if (series_.size() < kMostMfuSeries || series_.contains(op)) now_[op] = value;
        return;
      }
      if (facts_.reported() && known.speed) speed_ = facts_.Mfu(value, NameOfMfu(op).one_gpu);
      TakeSpeed(op, step.step, value, &known);
      return;
    }
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& /*out*/) override {
    for (const auto& [op, value] : now_) {
      SpeedSeries& series = series_[op];
      series.Add(step.step, value);
      if (speed_ > 0) series.AddRatio(value / speed_);
    }
    if (speed_ > 0) {
      computed_.Add(step.step, speed_);
    }
    now_.clear();
    speed_ = 0;
  }

  const void* judges_apart() const override { return this; }
  // Takes rows of known series if nothing is computed from the tokens.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    if (facts_.reported()) return 0;
    for (const ScalarColumn& column : rows.columns) {
      Known& known = KnownOf(column.any());
      if (!known.mfu || known.series != nullptr) continue;
      const auto series = series_.find(column.any().site.op());
      if (series == series_.end()) return 0;
      known.series = &series->second;
    }
    for (const ScalarColumn& column : rows.columns) {
      Known& known = KnownOf(column.any());
      for (size_t row = first; row < rows.size(); ++row) {
        const double value = column.value(row);
        if (!(value >= 0) || !(value < kMostSpeed)) continue;
        if (known.mfu) {
          known.series->Add(rows.steps[row], value);
        } else {
          TakeSpeed(column.any().site.op(), rows.steps[row], value, &known);
        }
      }
    }
    return rows.size() - first;
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [op, series] : series_) out.Add(Placed(op, series, JudgeSeries(op, series)));
    const auto fell = [](const auto& all) {
      return std::any_of(all.begin(), all.end(), [](const auto& any) { return any.second.fell; });
    };
    const bool tokens = speeds_.empty() == false;
    for (const auto& [op, series] : tokens ? speeds_ : paces_) {
      if (!series.fell || fell(series_) || rewards_) continue;
      out.Add(Placed(op, series, Fell(op, series, 1, {})));
      if (!tokens) break;  // the series are one speed in several units, so one is enough
    }
    if (computed_.points > 0 && series_.empty())
      out.Add(Placed("mfu", computed_, JudgeSeries("the MFU computed from the tokens", computed_)));
  }

  void Persist(Archive& archive) override {
    archive.Version(3, 3);  // 2: collapses, speeds; 3: paces, work
    archive(series_, computed_, now_, speed_, speeds_, rewards_, paces_, work_);
    if (archive.reading()) known_ = {};
  }

 private:
  // Cached facts of a site; recomputed after a restore. The series are set when they exist.
  struct Known {
    bool mfu = false, speed = false;
    SeriesRole role = SeriesRole::kNone;
    WorkName work;
    Companions::Series* changes = nullptr;
    SpeedSeries* series = nullptr;  // of a utilisation; set by TakeRows
    SpeedSeries *pace = nullptr, *tokens = nullptr;
  };
  Known Find(const std::string& op) const {
    const MfuName name = NameOfMfu(op);
    return {name.mfu, name.speed, roles_.Of(op), NameOfWork(op)};
  }

  Known& KnownOf(const SiteStep& step) {
    return known_.Of(step, [&] { return Find(step.site.op()); });
  }

  // Takes a speed, or notes a reward: a policy's answers change their length, and so the speed.
  void TakeSpeed(const std::string& op, int64_t step, double value, Known* known) {
    rewards_ = rewards_ || known->role == SeriesRole::kReward;
    if (known->work.work) {
      if (known->changes == nullptr) known->changes = work_.Of(op);
      if (known->changes != nullptr) {
        known->changes->kind = Companions::Kind::kPhase;
        known->changes->Take(step, value);
      }
    }
    if (const Pace pace = known->work.pace; pace != Pace::kNone && value > 0) {
      const bool seconds = pace == Pace::kSeconds;
      TakePace(op, step, seconds ? 1 / value : value, {kCollapseOfWork, seconds}, &paces_,
               &known->pace);
    }
    if (known->role == SeriesRole::kTokensPerSecond)
      TakePace(op, step, value, {SpeedSeries::kCollapse, false}, &speeds_, &known->tokens);
  }

  using Speeds = std::map<std::string, SpeedSeries>;
  struct PaceKind {
    double collapse = 0;
    bool seconds = false;
  };
  // Takes a speed that is judged for collapses only. Ignores it if there are too many.
  static void TakePace(const std::string& op, int64_t step, double value, PaceKind kind,
                       Speeds* speeds, SpeedSeries** known) {
    if (*known == nullptr) {
      if (speeds->size() >= kMostMfuSeries && !speeds->contains(op)) return;
      *known = &(*speeds)[op];
      (*known)->judges_drops = false;
      (*known)->collapse = kind.collapse;
      (*known)->seconds = kind.seconds;
    }
    (*known)->Add(step, value);
  }

  // Returns another cause of the fall: a series of the work per step that changed at the same time.
  std::optional<std::string> OtherWork(const SpeedSeries& series) const {
    const double every = static_cast<double>(series.last - series.first) /
                         static_cast<double>(std::max<uint64_t>(2, series.points) - 1);
    const double points = series.fell_of == SpeedSeries::kShort ? 2 : 64;
    return work_.PhaseNear(series.fell_step, points * every, series.points);
  }

  static v1::Verdict Placed(const std::string& op, const SpeedSeries& series, v1::Verdict verdict) {
    const bool fell = verdict.has_finding() && verdict.finding().cause().id() == "drop";
    const int64_t first = fell ? series.fell_step : series.first;
    SetPlace(verdict, "", op, first, std::max(first, series.last), std::vector<uint32_t>{});
    return verdict;
  }

  // Returns 1, or 100 if values are in percent.
  static double Whole(const std::string& op, const SpeedSeries& series) {
    if (HasWordsOfSpeed(op, {"percent"}) || HasWordsOfSpeed(op, {"pct"})) return 100;
    return 2 * series.above_one > series.points ? 100 : 1;
  }

  v1::Verdict JudgeSeries(const std::string& op, const SpeedSeries& series) const {
    if (series.points < kFewestPoints)
      return Inconclusive(absl::StrFormat("few-points: %s has %d finite points; the rule needs %d",
                                          op, series.points, kFewestPoints));
    const double whole = Whole(op, series);
    google::protobuf::Struct details;
    Put(details, "whole", whole);
    if (series.worst > whole) return Impossible(op, series, whole, std::move(details));
    if (computed_.worst > 1)
      return Impossible("the MFU computed from the tokens", computed_, 1, std::move(details));
    if (series.ratios.size() >= kFewestPoints) {
      std::vector<double> ratios(series.ratios.begin(), series.ratios.end());
      const double ratio = MedianOf(ratios) / whole;
      Put(details, "told_over_computed", ratio);
      if (!(std::abs(ratio - 1) <= kNear)) return NotItsFacts(op, ratio, std::move(details));
    }
    if (series.fell) return Fell(op, series, whole, std::move(details));
    std::vector<double> newest(series.newest.begin(), series.newest.end());
    return Pass(absl::StrFormat("%s is %.3g (median of %d points)", op, MedianOf(newest) / whole,
                                newest.size()),
                std::move(details));
  }

  v1::Verdict Impossible(const std::string& op, const SpeedSeries& series, double whole,
                         google::protobuf::Struct details) const {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    found.Title("the logged MFU is above 100 % of the peak")
        .Explain(absl::StrFormat("%s is %.4g in step %d; %g is 100 %% of the peak.",
                                 Capitalised(op), series.worst, series.worst_step, whole))
        .Cause("impossible", 1)
        .Measured("utilisation", series.worst / whole, "share")
        .Threshold(1, "100 % of the peak")
        .Samples(series.points)
        .Witness("step", static_cast<double>(series.worst_step))
        .Witness("value", series.worst)
        .Fix(
            "Check the peak (dense, for the dtype used, for the number of GPUs that train) and the "
            "parameters (active ones, not all).");
    *found.verdict().mutable_details() = std::move(details);
    return found.Take();
  }

  v1::Verdict NotItsFacts(const std::string& op, double ratio,
                          google::protobuf::Struct details) const {
    const auto near = [&](double expected) { return std::abs(ratio / expected - 1) <= kNear; };
    const char* cause = "other-facts";
    std::string words = "the difference has no known factor";
    if (facts_.total_over_active > 1 + kNear && near(facts_.total_over_active)) {
      cause = "total-for-active";
      words = "it counts all parameters, but a token uses only a part of them";
    } else if (near(0.5)) {
      cause = "wrong-peak";
      words = "it divides by the peak with sparsity, or of a dtype of half the width";
    } else if (near(2)) {
      cause = "wrong-peak";
      words = "it divides by the peak of a dtype of twice the width";
    }
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_BOUNDED);
    found.Title("the logged MFU differs from the computed MFU")
        .Explain(absl::StrFormat(
            "%s is %.3g times the value computed from the tokens, the model and the peak: %s.",
            Capitalised(op), ratio, words))
        .Cause(cause, std::string_view(cause) == "other-facts" ? 0.4 : 0.8)
        .Measured("logged MFU / computed MFU", ratio, "")
        .Threshold(1 + kNear, "a tenth")
        .Samples(kFewestPoints)
        .Assume("the options of this rule describe the model and the cluster correctly")
        .Witness("told_over_computed", ratio)
        .Fix(
            "Correct the trainer's formula, or the options: dense peak of the dtype used, active "
            "parameters, sequence length in training.");
    *found.verdict().mutable_details() = std::move(details);
    return found.Take();
  }

  v1::Verdict Fell(const std::string& op, const SpeedSeries& series, double whole,
                   google::protobuf::Struct details) const {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
    const bool collapsed = series.fell_of == SpeedSeries::kShort;
    found.Title(NameOfMfu(op).mfu ? "the MFU fell" : "the training speed fell")
        .Explain(absl::StrFormat(
            "%s fell from %.4g to %.4g at about step %d (medians of %d points).", Capitalised(op),
            series.before / whole, series.after / whole, series.fell_step, series.fell_of))
        .Cause("drop", collapsed ? 0.8 : 0.6)
        .Measured(NameOfMfu(op).mfu ? "lost share of the MFU" : "lost share of the speed",
                  1 - series.after / series.before, "share")
        .Threshold(collapsed ? 1 - series.collapse : SpeedSeries::kDrop,
                   !collapsed                                  ? "a tenth"
                   : series.collapse == SpeedSeries::kCollapse ? "a half, in 16 points"
                                                               : "three quarters, in 16 points")
        .Samples(2 * series.fell_of)
        .FalseAlarm("measured", kFalseDrops)
        .Assume("model, sequence length, batch and number of GPUs are as before")
        .Witness("step", static_cast<double>(series.fell_step))
        .Witness("before", series.before / whole)
        .Witness("after", series.after / whole)
        .Fix(
            "Find what changed at that step: a node, clocks, a loader. Record a trace, and audit "
            "it with performance/straggler and idle-comb.");
    if (series.seconds)
      found.Explain(absl::StrFormat(
          "%s rose from %.4g to %.4g at about step %d (medians of %d "
          "points).",
          Capitalised(op), 1 / series.before, 1 / series.after, series.fell_step, series.fell_of));
    if (const auto work = OtherWork(series))
      found.Level(v1::LEVEL_NOTE)
          .Assume(*work + " changes there: the work of a step is another one");
    *found.verdict().mutable_details() = std::move(details);
    return found.Take();
  }

  const MfuFacts facts_;
  std::map<std::string, SpeedSeries> series_;  // by op
  SpeedSeries computed_;                       // MFU computed from the tokens
  std::map<std::string, double> now_;          // of the open step
  double speed_ = 0;                           // MFU by the tokens of the open step
  Speeds speeds_;                              // tokens per second, by op
  Speeds paces_;                               // other speeds, by op
  Companions work_;                            // series that show the work of a step
  bool rewards_ = false;                       // a reward is logged
  const SeriesRoles roles_;                    // roles that the user assigned
  SiteMemo<Known> known_;
};

}  // namespace

CatalogueEntry mfu() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<Mfu>(options);
          }};
}

}  // namespace plumbline::rules
