#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "rules/bases/non_finite_series.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/loss-non-finite

A loss or a gradient norm is NaN or infinite, or a loss is exactly 0 where a log hides a NaN.

**Why.** One NaN in a loss makes every gradient of that step NaN, and an optimizer without a check writes it into all
weights: from the next step on the model is useless, and so is each hour until a person notices. Adam keeps it, too:
its second moment is NaN from then on, and a checkpoint of such a run is of no use, 1 step later or 10,000.

**Bad.** `lm loss: nan` at iteration 4,210, after 2.31 in the one before. `{'loss': 0.0, 'grad_norm': nan}` from the first line on.

**Good.** An iteration that was skipped because of the loss scale has no loss: that is not a NaN, and
Megatron-LM's log states it (`number of skipped iterations`). `grad_norm: inf` in one row of an fp16 run, finite in the next.

**How to fix it.**
- Go back to the last checkpoint whose weights and optimizer moments are finite (`plumb audit` of it), and skip that batch.
- `precision/non-finite` names the first tensor that was NaN or infinite: a softmax over a row that is masked whole, a
  logarithm of 0, an fp16 activation over 65,504.
- An evaluation alone: labels that are all masked, an empty split, fp16 in evaluation.
- Make the trainer stop or skip: Megatron-LM `--check-for-nan-in-loss-and-grad`, OLMo's check of the loss.

**What it checks.** Each series of a loss (`lm loss`, `train_loss`, `val/loss`, `aux_loss`, `z_loss`; not `loss_scale`, `loss_weight` and the like) and of a gradient norm (`grad_norm`, `gnorm`, `grad_norm/total`, what a map names so), every value of every rank.
- *A training loss.* The first value that is NaN or infinite is an error as its step closes, with the ranks that have one in that step; the others
  of the same attempt are counted, and reported again each time their number has doubled. If the same numbers of finite and of bad rows follow each
  other three times, and no gradient norm is missing in the bad ones, the series was not due in these: the error becomes a note.
- *A gradient norm.* An error if the loss of the row is lost, too (not finite, or exactly 0), if three rows in a row are not finite, if none ever was
  (eight rows, or all of the log: "NaN since the first logged step"), or at the end of a run without a loss scaler. One or two rows that are finite
  again after that are steps that a loss scaler skipped: a note, and a pass if the logged scale falls in that row or the next (`loss scale`,
  `grad_scale`, `amp_scale`, `scale`) or the count of skipped steps grows. More than 5 % of 100 rows or more, or three in a row: a warning.
- *An evaluation loss.* An error if it stays so. If the training loss is finite, the evaluation is at fault, and no checkpoint. Rows that are finite again later were not due: a note.
- *Exactly 0.* transformers logs a loss that is NaN as 0 (`logging_nan_inf_filter`). An error if the gradient norm is not finite there, or no norm
  is logged and the loss is 0 in the last three rows or more (while the run continues, 32), at once from far above 0 (a fifth of its largest value, or
  a level at which 8 values stood within 15 % and did not fall towards 0). If the norm is 0, too, over eight rows, a warning: no label is left.
  A loss that fades to 0, one that was 0 before, one next to another training loss that is above 0 (a part that is
  switched off), and one with a norm above 0 are none; nor, without a lost norm, those of reinforcement learning, a term by its name (`sync_loss`) that was never above 0, a loss with a
  margin (`hinge_loss`, `triplet_loss`), and one next to an accuracy of exactly 1.
- *A perplexity or a likelihood.* As an evaluation loss. An infinite perplexity next to a finite loss does not count: it overflows at a loss of 89 (fp32) or 12 (fp16).
- *A metric of reinforcement learning*: a KL, an entropy, an importance ratio, a train/inference mismatch, a reward. As an evaluation loss. The reward of one
  reward function and the return of an episode may be NaN where they do not apply.
- *A count of NaN* (`number of nan iterations`). A row that counts one is not finite, and is judged as a gradient
  norm; a single one is a warning, or none if the row counts a skipped step, too.
- *A column that becomes empty.* `plumb audit` of a table (CSV, JSON lines): the loss or the norm has a value in nine
  rows of ten and ten rows at least, then in none of the last five rows or more, while other columns continue: a warning. pandas writes NaN as an empty cell, orjson as null.

The series of one run and attempt have one cause: one incident.

**Strength.** `proved`: the value is there to be read. A loss of 0 without a logged norm is `bounded`: hinge losses
that reach 0 at once look the same.
A NaN is found at its row in a run of any length; rows of a count or a norm as stated above (docs/measurements/short_runs.md).

**Inconclusive when** steps were closed over a rank that had reported this loss before: its values are not known.

**What it cannot see.** What is not logged: a mean over ranks that leaves NaN out, a value that was clipped.

**Cost.** A comparison a value.

**Sources.** Amazon SageMaker Debugger, rule `LossNotDecreasing` and `NaN` checks of tensors; Megatron-LM
(`rerun_state_machine`), whose check ends the run: Plumbline reports it, and continues to judge later steps.
)page";

constexpr RuleInfo kInfo = {"health/loss-non-finite",
                            "a loss or a gradient norm is NaN or infinite",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {},
                            /*alpha_weight=*/0,
                            /*decides_early=*/true};

enum class ScalarPart : uint8_t { kNone, kLoss, kNorm, kScale, kThrownAway, kSide, kAccuracy };

class LossNonFinite : public ScalarRule {
 public:
  explicit LossNonFinite(const Options& options) : stated_(options.roles()) {}
  bool ReadsScalar(const v1::Site& site) const override {
    return PartOfRun(site.op(), stated_.Of(site.op())) != ScalarPart::kNone;
  }
  // One rank's value is enough for a finding.
  bool judges_late() const override { return true; }
  bool judges_unseen_steps() const override { return false; }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    if (step.items.empty() || !step.items.front().evidence->has_scalar()) return;
    Known& known = KnownOf(step);
    if (known.part == ScalarPart::kNone) return;
    if (known.side == GameSide::kEpisodes) episodes_ = true;
    if (known.part == ScalarPart::kSide) return;
    if (known.part == ScalarPart::kAccuracy) {
      right_ = IsAllRight(step.items.front().evidence->scalar().value());
      return;
    }
    if (known.part == ScalarPart::kScale || known.part == ScalarPart::kThrownAway)
      return TakeScaler(step, known);
    Waiting waiting = Gather(step, known);
    if (!step.late) return waiting_.push_back(std::move(waiting));
    std::vector<Waiting> one;
    one.push_back(std::move(waiting));
    JudgeRow(step.attempt, step.role, &one, out);
  }

  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    JudgeRow(step.attempt, step.role, &waiting_, out);
    waiting_.clear();
    fell_ = thrown_away_ = false;
  }

  const void* judges_apart() const override { return this; }
  // Takes rows of known series without an open incident, if values are finite and not 0.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    if (rows.columns.empty()) return rows.size() - first;
    size_t taken = rows.Finite(first);
    for (const ScalarColumn& column : rows.columns)
      taken = std::min(taken, PlainRows(rows, column, first, taken));
    if (taken == 0) return 0;
    for (const ScalarColumn& column : rows.columns) {
      const Known& known = KnownOf(column.any());
      if (known.series == nullptr) {
        TakeScales(column, known, first, taken);
        if (known.part == ScalarPart::kAccuracy)
          right_ = IsAllRight(column.value(first + taken - 1));
        continue;
      }
      known.series->TakePlain(rows, column, first, taken);
      training_finite_ |= known.series->role == SeriesRole::kLoss;
    }
    return taken;
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (auto& [key, series] : series_) {
      const auto& [of, layer, op] = key;
      if (const NonFiniteEvent states = series.course.End(); states != NonFiniteEvent::kNothing)
        Emit(states, of, layer, op, &series, out);
      if (series.healed()) ReportHealed(of, layer, op, &series, out);
      if (series.zero.reported || series.LooksMasked(MayBeZero(series, op), true)) {
        series.found = true;
        out.Add(ZeroLossFinding(series.zero, PlaceOf(of, layer, op, series), false).Take());
      }
      if (series.found) continue;
      v1::Verdict verdict = Rest(series);
      Put(*verdict.mutable_details(), "series", op);
      Put(*verdict.mutable_details(), "points", static_cast<double>(series.values));
      SetPlace(verdict, layer, op, series.step_first, series.step_last, series.ranks);
      out.Add(std::move(verdict));
    }
  }

  // known_ is recomputed after a restore. waiting_, fell_ and thrown_away_ belong to one step.
  void Persist(Archive& archive) override {
    archive.Version(7, 7);  // 6: stores the newest values; 7: whether an accuracy is 1
    archive(series_, scales_, causes_, training_finite_, episodes_, right_);
    if (archive.reading()) known_ = {};
  }

 private:
  using Key = std::tuple<v1::Role, std::string, std::string>;  // of, layer, op
  struct Known {
    ScalarPart part = ScalarPart::kNone;
    SeriesRole role = SeriesRole::kNone;
    GameSide side = GameSide::kNone;
    NonFiniteSeries* series = nullptr;  // set when the series exists
    ScalerWatch* scaler = nullptr;
  };
  // A series' values of the current step.
  struct Waiting {
    Key key;
    NonFiniteSeries* series = nullptr;
    NonFiniteRow row;
    std::vector<uint32_t> bad_ranks;
  };

  static ScalarPart PartOfRun(const std::string& op, SeriesRole role) {
    switch (role) {
      case SeriesRole::kLoss:
      case SeriesRole::kEvaluationLoss:
      case SeriesRole::kAuxiliaryLoss:
      case SeriesRole::kPerplexity:
      case SeriesRole::kLikelihood:
      case SeriesRole::kNanCount:
        return ScalarPart::kLoss;
      case SeriesRole::kGradientNorm:
        return ScalarPart::kNorm;
      case SeriesRole::kLossScale:
        return ScalarPart::kScale;
      case SeriesRole::kAccuracy:
        return ScalarPart::kAccuracy;
      default:
        break;
    }
    if (CountsThrownAway(op)) return ScalarPart::kThrownAway;
    if (IsPolicyMetric(role) && !MayLackReward(op, role)) return ScalarPart::kLoss;
    return SideByName(op) == GameSide::kEpisodes ? ScalarPart::kSide : ScalarPart::kNone;
  }

  Known& KnownOf(const SiteStep& step) {
    return known_.Of(step, [&] {
      SeriesRole role = stated_.Of(step.site.op());
      const bool measure = role == SeriesRole::kPerplexity || role == SeriesRole::kLikelihood;
      if (measure && IsOfEvaluation(step.site.op())) role = SeriesRole::kEvaluationLoss;
      return Known{PartOfRun(step.site.op(), role), role, SideByName(step.site.op()), nullptr,
                   nullptr};
    });
  }

  // All ranks have the same scale. Takes the value of the lowest rank that has a finite one.
  void TakeScaler(const SiteStep& step, Known& known) {
    if (known.scaler == nullptr) {
      known.scaler = &scales_[{step.role, step.site.layer(), step.site.op()}];
      if (CountsOfRows(step.site.op())) known.scaler->OfRows();
    }
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      const double value = item.evidence->scalar().value();
      if (!std::isfinite(value)) continue;
      if (known.part == ScalarPart::kScale) {
        fell_ |= known.scaler->TakeScale(value);
      } else {
        thrown_away_ |= known.scaler->TakeCount(value);
      }
      return;
    }
  }
  static void TakeScales(const ScalarColumn& column, const Known& known, size_t first,
                         size_t count) {
    if (known.scaler == nullptr) return;  // the column is a metric of an episode
    for (size_t i = first; i < first + count; ++i) {
      if (known.part == ScalarPart::kScale) {
        known.scaler->TakeScale(column.value(i));
      } else {
        known.scaler->TakeCount(column.value(i));
      }
    }
  }

  Waiting Gather(const SiteStep& step, Known& known) {
    Waiting waiting{{step.role, step.site.layer(), step.site.op()}, nullptr, {}, {}};
    if (known.series == nullptr) {
      const auto [entry, fresh] = series_.try_emplace(waiting.key);
      known.series = &entry->second;
      if (fresh) known.series->Begin(known.role, step.step);
    }
    waiting.series = known.series;
    waiting.row = known.series->Gather(step, &waiting.bad_ranks);
    return waiting;
  }

  void JudgeRow(uint32_t attempt, v1::Role of, std::vector<Waiting>* row, VerdictSink& out) {
    bool lost = false, training = false, finite = false, alive = false;
    ZeroLoss::Norm norm = ZeroLoss::Norm::kAbsent;
    for (const Waiting& one : *row) {
      if (one.series->role == SeriesRole::kLoss) {
        training = true;
        finite |= one.row.bad == 0;
        alive |= one.row.bad == 0 && one.row.finite != 0;
        lost |= one.row.bad > 0 || (one.row.finite == 0 && !episodes_);
      } else if (one.series->role == SeriesRole::kGradientNorm) {
        norm = Stronger(norm, NormOf(one.row));
      }
    }
    // A perplexity e^loss overflows long before the loss does.
    for (Waiting& one : *row) {
      const bool overflows = one.series->role == SeriesRole::kPerplexity && !one.row.nan;
      if (overflows && finite) one.row.bad = 0;
    }
    if (training) training_finite_ = norm == ZeroLoss::Norm::kLost ? !lost : finite;
    // A loss that is 0 while other losses are not may be a part that is switched off.
    if (alive && norm != ZeroLoss::Norm::kLost) norm = ZeroLoss::Norm::kFinite;
    const bool scaled = std::any_of(scales_.begin(), scales_.end(), [&](const auto& scale) {
      return std::get<0>(scale.first) == of;
    });
    for (Waiting& one : *row) {
      one.row.loss_lost = lost;
      one.row.norm_lost = norm == ZeroLoss::Norm::kLost;
      one.row.fell = fell_;
      one.row.skipped = fell_ || thrown_away_;
      one.row.scaled = scaled;
      if (!one.bad_ranks.empty()) one.series->bad_ranks = std::move(one.bad_ranks);
      const auto& [role, layer, op] = one.key;
      NonFiniteCourse& course = one.series->course;
      if (attempt != course.attempt() && course.rows() > 0) {
        const NonFiniteEvent ended = course.End();  // of the previous attempt
        if (ended != NonFiniteEvent::kNothing) Emit(ended, role, layer, op, one.series, out);
        one.series->EndAttempt(one.row.step);
      }
      const NonFiniteEvent states = course.Take(attempt, one.row);
      if (states != NonFiniteEvent::kNothing) Emit(states, role, layer, op, one.series, out);
      if (one.series->role == SeriesRole::kLoss) TakeZero(one, norm, out);
    }
  }

  // True for a loss of a game, a term that was always 0 (it may be switched on later), and a loss
  // that is 0 if all answers are right.
  bool MayBeZero(const NonFiniteSeries& series, const std::string& op) const {
    return episodes_ || right_ || HasMargin(op) ||
           (!std::isfinite(series.zero.before) && !IsWholeLoss(op));
  }

  void TakeZero(const Waiting& one, ZeroLoss::Norm norm, VerdictSink& out) {
    NonFiniteSeries& series = *one.series;
    const auto& [of, layer, op] = one.key;
    ZeroLoss before;
    const NonFiniteSeries::Zero zero =
        series.TakeZero(one.row, norm, MayBeZero(series, op), &before);
    if (zero == NonFiniteSeries::Zero::kNothing) return;
    series.found = true;
    const bool over = zero == NonFiniteSeries::Zero::kOver;
    out.Add(
        ZeroLossFinding(over ? before : series.zero, PlaceOf(of, layer, op, series), over).Take());
  }

  // All non-finite values of an attempt are one incident: the first one gives the cause of the
  // others.
  NonFinitePlace PlaceOf(v1::Role of, const std::string& layer, const std::string& op,
                         const NonFiniteSeries& series) {
    NonFinitePlace place{layer,         op, series.role,     series.bad_ranks,
                         series.values, "", training_finite_};
    const std::string& known = causes_[{of, series.course.attempt()}];
    place.cause = known.empty() ? series.course.what() : known;
    return place;
  }

  void Emit(NonFiniteEvent states, v1::Role of, const std::string& layer, const std::string& op,
            NonFiniteSeries* series, VerdictSink& out) {
    series->found = true;
    const bool apart = series->role == SeriesRole::kEvaluationLoss && training_finite_;
    if (std::string& cause = causes_[{of, series->course.attempt()}];
        states == NonFiniteEvent::kLasts && !apart && cause.empty())
      cause = series->course.what();
    out.Add(NonFiniteFinding(states, series->course, PlaceOf(of, layer, op, *series)).Take());
  }

  // Reports NaN values that a resume removed by going back to an earlier step.
  void ReportHealed(v1::Role of, const std::string& layer, const std::string& op,
                    NonFiniteSeries* series, VerdictSink& out) {
    NonFinitePlace place = PlaceOf(of, layer, op, *series);
    place.cause = series->failed.what();
    FindingBuilder found = NonFiniteFinding(NonFiniteEvent::kLasts, series->failed, place);
    found.Explain(absl::StrCat(found.finding().explanation(), " A resume in step ",
                               series->resumed_at, " went back, and all ", series->course.rows(),
                               " values since then are finite."));
    out.Add(found.Take());
  }

  static v1::Verdict Rest(const NonFiniteSeries& series) {
    if (series.closed_over > 0)
      return Inconclusive(absl::StrCat("rank-missing: ", series.closed_over,
                                       " steps were closed over a rank that reports this loss"));
    const uint64_t skipped = series.course.skipped_rows();
    if (skipped == 0) return Pass("every value was finite");
    return Pass(absl::StrCat("every value was finite, except in ", skipped,
                             " rows that the loss scaler skipped"));
  }

  // Returns how many of the next `most` rows contain nothing to report in this column.
  size_t PlainRows(const ScalarRows& rows, const ScalarColumn& column, size_t first, size_t most) {
    const Known& known = KnownOf(column.any());
    if (known.part == ScalarPart::kSide || known.part == ScalarPart::kAccuracy) return most;
    if (known.series != nullptr) return known.series->PlainRows(rows, column, first, most);
    return known.scaler == nullptr ? 0 : most;
  }

  std::map<Key, NonFiniteSeries> series_;
  std::map<Key, ScalerWatch> scales_;  // loss scales, and counters of skipped steps
  std::map<std::pair<v1::Role, uint32_t>, std::string> causes_;
  bool training_finite_ = false, episodes_ = false;
  bool right_ = false;        // the newest accuracy is 1
  const SeriesRoles stated_;  // roles stated by the user
  std::vector<Waiting> waiting_;
  bool fell_ = false, thrown_away_ = false;  // both in the current step
  SiteMemo<Known> known_;
};

}  // namespace

CatalogueEntry loss_non_finite() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<LossNonFinite>(options);
          }};
}

}  // namespace plumbline::rules
