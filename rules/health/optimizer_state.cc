#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/weights/weights.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/optimizer-state

A run continues from a checkpoint, but its optimizer or its schedule does not.

**Why.** Where `optimizer.load_state_dict` is left out, Adam's moments begin at zero again: with β₂ = 0.999 the second one needs some 1,000 steps to
estimate a gradient's size, and until then the steps are too large, because no warm-up makes them smaller. The loss jumps, comes back after hours, and
ends higher. Where the schedule is left out, the rate begins at its warm-up again.

**Bad.** `the optimizer had taken 12,000 steps in step 12000 and 500 in step 12500`

**Good.** Both rise. A schedule that is stepped a constant whole number of times (Accelerate: once a process), skipped
steps of a loss scale, parameters
that are frozen, unused or join later: the largest counts.

**How to fix it.**
- PyTorch: save and load `optimizer.state_dict()` and `scheduler.state_dict()` together with the model; load them
  after `optimizer` has all its parameter groups.
- transformers: `trainer.train(resume_from_checkpoint=True)`, with `optimizer.pt` and `scheduler.pt` in the folder.
- Megatron-LM: without `--no-load-optim`, `--finetune`; DeepSpeed: `load_optimizer_states=True, load_lr_scheduler_states=True`.
- Weights that differ from their fp32 masters: copy the masters to the weights before saving; load both from one checkpoint. Stochastic rounding on
  purpose: `--set health/optimizer-state.rounding=stochastic`.
- A new run from these weights: keep its checkpoints in a folder of their own.

**What it checks.** The counters in the checkpoints of one run: the largest `step` that the optimizer keeps of a parameter (series
`optimizer.step`) and the schedule's `last_epoch` (`scheduler.step`), against the checkpoint before. The optimizer's step falls while the checkpoint's
rises: error; a warning where it is above what the run can have made since (an older state: a run that was rolled back), or
where no parameter has a name, or none the same (a next stage). The schedule's falls while the optimizer's does not, or while the checkpoint's rises where the optimizer
keeps no steps (SGD): warning. The
whole number of schedule's steps an optimizer's step changes: warning. The optimizer's step is the number of steps since an earlier checkpoint of at
least step 8 that has no optimizer state: error, `heuristic`.
The second moment (`exp_avg_sq`, or `momentum_buffer`) of a parameter that an optimizer's group lists is missing or zero, although the checkpoint
before had it and the optimizer's step does not fall: error. The same of all parameters at once, named or not: their state is empty, or holds
`momentum_buffer: None`, while the groups (series `optimizer.held`) list them; a warning where no step is kept. A bf16 or fp16 weight is not its fp32
master of the same checkpoint (`master_param`), rounded to nearest: error. Where stochastic rounding is declared, only
what rounding in neither direction gives counts.

`run.watch` reports the steps that the state of a live run's first optimizer has made (at powers of two, and if they fall to 1): a new optimizer, or a
state that was cleared, within the run is the same error. Across attempts (processes) it reports whether the first update found a state, and the first
and last values of the loss. If a framework continues its step count (`trained/resumed`: transformers, Lightning) and the first update finds no
state, that is an error in this step. If an attempt begins without a state, and its first losses keep half or more of
the fall of the attempt before (which must
exceed 4 standard deviations), its weights are not fresh: warning, `heuristic`. An optimizer without moments (plain SGD) reports nothing.

**Strength.** `proved`: the numbers are what the files hold.

**Inconclusive when** only one checkpoint contains them, no two consecutive ones contain the same, or one is not a number.

**What it cannot see.** That an optimizer without a `step` (SGD) was not loaded, once its first step has filled its momentum again;
parameters whose number in the state could not be named (unless all are gone); a state that is stored outside the checkpoint.

**Cost.** Some 60 bytes a rank, and the name of each parameter.

**Sources.** Kingma and Ba, "Adam", 2015, section 3 (the correction of the moments' start).
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "rounding",
     .type = OptionInfo::Type::kText,
     .unit = "nearest or stochastic",
     .default_value = "nearest",
     .reason = "rounding of fp32 masters to weights; frameworks round to nearest"},
};

constexpr RuleInfo kInfo = {"health/optimizer-state",
                            "the optimizer's state was reset within a run",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr char kParameters[] = "optimizer.held";   // number of parameters in its groups
constexpr char kStateNamed[] = "optimizer.named";  // in each checkpoint, with or without state
constexpr char kMaster[] = "master.";  // comparison of a weight with its fp32 master, at its layer
constexpr char kHeldRate[] = "held";   // recorded once per parameter of a group, at its layer
constexpr double kFewSteps = 100;      // with fewer, a few skipped steps look like a ratio
constexpr double kNearWhole = 0.02;
constexpr size_t kMostMoments = size_t{1} << 18;  // limit of parameters per rank
constexpr int64_t kFirstBare = 8;   // with fewer, a loss scaler may have skipped the steps
constexpr size_t kMostBare = 1024;  // checkpoints without a state that are remembered

struct StateCourse {
  std::optional<StateCounts> last;
  double ratio = 0;     // schedule steps per optimizer step, a whole number; 0 if unknown
  uint64_t pairs = 0;   // pairs of checkpoints that both store the optimizer's steps
  uint64_t others = 0;  // pairs that both store another part of the state
  bool apart = false;   // the two checkpoints of some pair have no part of the state in common
  uint64_t odd = 0;     // checkpoints with an invalid step count, for example NaN
  int64_t step_first = 0;
  bool reported = false, reported_schedule = false, reported_moments = false;
  bool reported_masters = false;
  void Persist(Archive& a) {
    a(last, ratio, pairs, others, apart, odd, step_first, reported, reported_schedule,
      reported_moments, reported_masters);
  }
};

class OptimizerState : public ScalarRule {
 public:
  explicit OptimizerState(const Options& options)
      : stochastic_(options.Text("rounding").find("stochastic") != std::string::npos) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return AttemptCourse::Reads(site.op()) || site.op() == kOptimizerStep ||
           site.op() == kSchedulerStep || site.op() == kParameters || site.op() == kStateNamed ||
           site.op() == kHeldRate || site.op().starts_with(kMaster);
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    for (const Item& item : step.items) {
      if (item.evidence->has_tensor()) TakeMoment(step.site, item);
      if (!item.evidence->has_scalar() || !ReadsScalar(step.site)) continue;
      if (AttemptCourse::Reads(step.site.op())) {
        attempts_[{step.role, item.source->rank()}].Take(step.attempt, step.site.op(),
                                                         item.evidence->scalar().value());
        continue;
      }
      StateCounts& counts = open_[item.source->rank()];
      if (step.site.op() == kHeldRate) {
        if (counts.held.size() < kMostMoments) counts.held.insert(step.site.layer());
        continue;
      }
      if (step.site.op().starts_with(kMaster)) {
        counts.masters[step.site.layer()][step.site.op()] = item.evidence->scalar().value();
        continue;
      }
      const double value = item.evidence->scalar().value();
      if (step.site.op() == kStateNamed) {
        checkpoints_.insert(item.source->rank());
        counts.named = value;
        continue;
      }
      if (step.site.op() == kParameters) {
        counts.parameters = value;
        continue;
      }
      (step.site.op() == kOptimizerStep ? counts.optimizer : counts.scheduler) = value;
    }
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    for (auto& [rank, counts] : open_) {
      if (!counts.optimizer && !counts.scheduler && counts.masters.empty() &&
          !(counts.parameters > 0))
        continue;
      counts.step = step.step;
      Take(step, rank, counts, out);
    }
    for (const uint32_t rank : checkpoints_) JudgeBare(step, rank, out);
    checkpoints_.clear();
    open_.clear();
    for (auto& [key, course] : attempts_) {
      if (key.first != step.role) continue;
      if (auto verdict = course.Judge(key.second, step.step)) out.Add(*std::move(verdict));
    }
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, course] : courses_) {
      if (course.reported || course.reported_schedule || course.reported_moments ||
          course.reported_masters)
        continue;
      v1::Verdict verdict =
          course.pairs > 0    ? Pass("the step count of the optimizer rises with that of the run")
          : course.others > 0 ? Pass(
                                    "the schedule's step count and the moments continue; the "
                                    "optimizer stores no step count that could be compared")
          : course.odd > 0
              ? Inconclusive("no-number: the step count of a checkpoint is not a number")
          : course.apart
              ? Inconclusive(
                    "nothing-in-common: no two consecutive checkpoints store the same parts (step "
                    "count, schedule, moments)")
              : Inconclusive("one-checkpoint: the rule compares two checkpoints, and found one");
      Put(*verdict.mutable_details(), "pairs", static_cast<double>(course.pairs));
      SetPlace(verdict, "", kOptimizerStep, course.step_first,
               course.last ? course.last->step : course.step_first,
               std::vector<uint32_t>{key.second});
      out.Add(std::move(verdict));
    }
  }

  // open_ and checkpoints_ are empty between steps, so they are not stored.
  void Persist(Archive& archive) override {
    const uint32_t version = archive.Version(5, 3);
    archive(courses_);
    if (version >= 4) archive(attempts_);
    if (version >= 5) archive(bare_);
  }

 private:
  // Takes state that cannot return to zero: a second moment or a momentum is a sum of many terms.
  void TakeMoment(const v1::Site& site, const Item& item) {
    if (site.op() != "exp_avg_sq" && site.op() != "momentum_buffer") return;
    const v1::TensorSummary& s = item.evidence->tensor().summary();
    StateCounts& counts = open_[item.source->rank()];
    if (counts.moments.size() + counts.odd.size() >= kMostMoments) return;
    if (s.nan() + s.pos_inf() + s.neg_inf() > 0) {
      counts.odd.insert(site.layer());
    } else if (s.count() > 0 && s.zero() < s.count()) {
      counts.moments.insert(site.layer());
    }
  }

  // Reports a state whose step count starts at an earlier checkpoint without a state.
  void JudgeBare(const StepEnd& step, uint32_t rank, VerdictSink& out) {
    const auto open = open_.find(rank);
    std::set<int64_t>& bare = bare_[{step.role, rank}];
    if (open == open_.end() || (!open->second.optimizer && !(open->second.parameters > 0))) {
      if (step.step >= kFirstBare && bare.size() < kMostBare) bare.insert(step.step);
      return;
    }
    const StateCounts& now = open->second;
    if (!now.optimizer || !IsCount(now.optimizer) || !(*now.optimizer > 0)) return;
    const auto lost = bare.find(step.step - static_cast<int64_t>(*now.optimizer));
    if (lost == bare.end()) return;
    StateCourse& course = courses_[{step.role, rank}];
    if (std::exchange(course.reported, true)) return;
    out.Add(StateLost(rank, *lost, now));
  }

  // Returns false for NaN, because comparisons with NaN fail. Such values are counted as odd.
  static bool IsCount(const std::optional<double>& value) {
    return !value || (*value >= 0 && *value < 0x1p53);
  }

  void Take(const StepEnd& step, uint32_t rank, const StateCounts& now, VerdictSink& out) {
    const bool is_new = !courses_.contains({step.role, rank});
    StateCourse& course = courses_[{step.role, rank}];
    if (is_new) course.step_first = step.step;
    JudgeMasters(step, rank, now, course, out);
    if (!IsCount(now.optimizer) || !IsCount(now.scheduler)) {
      ++course.odd;
      return;
    }
    if (course.last && now.step > course.last->step) Compare(rank, *course.last, now, course, out);
    course.last = now;
    course.last->masters.clear();
  }

  static void Compare(uint32_t rank, const StateCounts& before, const StateCounts& now,
                      StateCourse& course, VerdictSink& out) {
    const bool counted = before.optimizer && now.optimizer;
    const bool scheduled = before.scheduler && now.scheduler;
    if (counted) {
      ++course.pairs;
    } else if (scheduled || (!before.moments.empty() && now.parameters > 0)) {
      ++course.others;  // SGD stores no step count
    } else {
      course.apart = true;
      return;
    }
    if (counted && *now.optimizer < *before.optimizer) {
      course.ratio = 0;
      if (!std::exchange(course.reported, true)) out.Add(StateFell(rank, before, now));
      return;
    }
    CompareMoments(rank, before, now, course, out);
    if (!scheduled) return;
    if (*now.scheduler < *before.scheduler) {
      course.ratio = 0;
      if (!std::exchange(course.reported_schedule, true)) out.Add(ScheduleAnew(rank, before, now));
      return;
    }
    if (!counted) return;
    const double steps = *now.optimizer - *before.optimizer;
    if (!(steps >= kFewSteps)) return;
    const double ratio = (*now.scheduler - *before.scheduler) / steps;
    const double whole = std::round(ratio);
    if (!(whole >= 1) || !(std::fabs(ratio - whole) <= kNearWhole * whole)) return;
    if (course.ratio > 0 && course.ratio != whole && !std::exchange(course.reported_schedule, true))
      out.Add(OtherRatio(rank, course.ratio, whole, before, now));
    course.ratio = whole;
  }

  void JudgeMasters(const StepEnd& step, uint32_t rank, const StateCounts& now, StateCourse& course,
                    VerdictSink& out) const {
    const std::pair<const std::string, std::map<std::string, double>>* worst = nullptr;
    uint64_t weights = 0;
    for (const auto& entry : now.masters) {
      if (!(Wrong(entry.second) > 0)) continue;
      ++weights;
      if (worst == nullptr || Wrong(entry.second) > Wrong(worst->second)) worst = &entry;
    }
    if (weights == 0 || std::exchange(course.reported_masters, true)) return;
    out.Add(NotTheirMasters(step, rank, worst->first, worst->second, weights));
  }

  static double Of(const std::map<std::string, double>& master, const char* what) {
    const auto at = master.find(absl::StrCat(kMaster, what));
    return at == master.end() ? 0 : at->second;
  }

  double Wrong(const std::map<std::string, double>& master) const {
    return Of(master, stochastic_ ? "beyond" : "differ");
  }

  v1::Verdict NotTheirMasters(const StepEnd& step, uint32_t rank, const std::string& name,
                              const std::map<std::string, double>& master, uint64_t weights) const {
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title("weights differ from their rounded fp32 masters")
        .Explain(absl::StrFormat(
            "%s: %.0f of %.0f elements are not the result of %s of the fp32 master in the same "
            "checkpoint (the first wrong one: element %.0f is %.9g, its master is %.9g). %d "
            "weights of the checkpoint are affected.",
            name, Wrong(master), Of(master, "compared"),
            stochastic_ ? "rounding in either direction" : "rounding to nearest",
            Of(master, "first"), Of(master, "weight"), Of(master, "value"), weights))
        .Cause("masters-not-copied", 0.8)
        .Measured("share of elements that differ from the rounded master",
                  Wrong(master) / Of(master, "compared"), "share")
        .Threshold(0, "a weight equals its rounded master")
        .Fix(
            "Copy the masters to the weights before saving, and load both from one checkpoint. If "
            "you use stochastic rounding, declare it (option rounding).")
        .Witness("element", Of(master, "first"))
        .Witness("weight", Of(master, "weight"))
        .Witness("master", Of(master, "value"))
        .Witness("beyond_either_neighbour", Of(master, "beyond"))
        .At(name, "weight", step.step, step.step, std::vector<uint32_t>{rank});
    return found.Take();
  }

  static void CompareMoments(uint32_t rank, const StateCounts& before, const StateCounts& now,
                             StateCourse& course, VerdictSink& out) {
    std::vector<std::string> gone;
    for (const std::string& name : before.moments) {
      if (now.held.contains(name) && !now.moments.contains(name) && !now.odd.contains(name))
        gone.push_back(name);
    }
    // If all moments are missing, their names do not matter.
    if (now.parameters > 0 && now.moments.empty() && now.odd.empty())
      gone.assign(before.moments.begin(), before.moments.end());
    if (gone.empty() || std::exchange(course.reported_moments, true)) return;
    out.Add(MomentsGone(rank, gone, before, now));
  }

  bool stochastic_;
  std::map<uint32_t, StateCounts> open_;  // by rank, of this step
  std::set<uint32_t> checkpoints_;        // ranks with a checkpoint of this step
  std::map<std::pair<v1::Role, uint32_t>, std::set<int64_t>> bare_;  // steps without a state
  std::map<std::pair<v1::Role, uint32_t>, StateCourse> courses_;
  std::map<std::pair<v1::Role, uint32_t>, AttemptCourse> attempts_;
};

}  // namespace

CatalogueEntry optimizer_state() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<OptimizerState>(options);
          }};
}

}  // namespace plumbline::rules
