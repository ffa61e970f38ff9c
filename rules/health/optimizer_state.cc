#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/optimizer-state

A run goes on from a checkpoint, and its optimizer or its schedule does not.

**Why.** Where `optimizer.load_state_dict` is left out, Adam's moments begin at zero again: with β₂ = 0.999 the second one needs some 1,000 steps to
tell what size a gradient has, and until then steps are of the size of a warm-up's without being warmed up. The loss jumps, comes back after hours,
and ends higher. Where the schedule is left out, the rate begins at its warm-up again.

**What it checks.** What checkpoints of one run say of themselves: the largest `step` that the optimizer keeps of a parameter (series
`optimizer.step`) and the schedule's `last_epoch` (`scheduler.step`), against the checkpoint before. The optimizer's step falls while the checkpoint's
rises: error. The schedule's falls while the optimizer's does not: warning. The whole number of schedule's steps an optimizer's step changes: warning.

**Bad.** `the optimizer has taken 12,000 steps in the checkpoint of step 12000 and 500 in that of step 12500`

**Good.** Both rise. A schedule that is stepped a constant whole number of times (Accelerate: once a process), skipped steps of a loss scale, parameters
that are frozen, unused or join later: the largest counts.

**How to fix it.**
- PyTorch: save and load `optimizer.state_dict()` and `scheduler.state_dict()` beside the model; load them after `optimizer` has all its parameter groups.
- transformers: `trainer.train(resume_from_checkpoint=True)`, with `optimizer.pt` and `scheduler.pt` in the folder.
- Megatron-LM: without `--no-load-optim`, `--finetune`; DeepSpeed: `load_optimizer_states=True, load_lr_scheduler_states=True`.
- A new run from these weights: keep its checkpoints in a folder of their own.

**Strength.** `proved`: the numbers are what the files hold.

**Inconclusive when** only one checkpoint tells them, or one is no number.

**What it cannot see.** Optimizers that keep no `step`; moments that are gone while their step is kept; a state that is kept outside of the checkpoint.

**Cost.** Some 60 bytes a rank.

**Sources.** Kingma and Ba, "Adam", 2015, section 3 (the correction of the moments' start).
)page";

constexpr RuleInfo kInfo = {"health/optimizer-state",
                            "the optimizer begins anew within a run",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

constexpr char kOptimizerStep[] = "optimizer.step";
constexpr char kSchedulerStep[] = "scheduler.step";
constexpr double kFewSteps = 100;  // of the optimizer: below, a few skipped ones make a ratio
constexpr double kNearWhole = 0.02;

// What one checkpoint of one rank says.
struct StateCounts {
  int64_t step = 0;
  std::optional<double> optimizer, scheduler;
  void Persist(Archive& a) { a(step, optimizer, scheduler); }
};

struct StateCourse {
  std::optional<StateCounts> last;
  double ratio = 0;  // schedule's steps an optimizer's step, whole; 0: not known
  uint64_t pairs = 0;
  uint64_t odd = 0;  // no numbers
  int64_t step_first = 0;
  bool told = false, told_schedule = false;
  void Persist(Archive& a) { a(last, ratio, pairs, odd, step_first, told, told_schedule); }
};

class OptimizerState : public Rule {
 public:
  bool ReadsScalar(const v1::Site& site) const override {
    return site.op() == kOptimizerStep || site.op() == kSchedulerStep;
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar() || !ReadsScalar(step.site)) continue;
      StateCounts& counts = open_[item.source->rank()];
      const double value = item.evidence->scalar().value();
      (step.site.op() == kOptimizerStep ? counts.optimizer : counts.scheduler) = value;
    }
  }

  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    for (auto& [rank, counts] : open_) {
      counts.step = step.step;
      Take(step, rank, counts, out);
    }
    open_.clear();
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, course] : courses_) {
      if (course.told || course.told_schedule) continue;
      v1::Verdict verdict =
          course.pairs > 0 ? Pass("the optimizer's steps rise with the checkpoints'")
          : course.odd > 0 ? Inconclusive("no-number: what a checkpoint keeps as its steps is none")
                           : Inconclusive("one-checkpoint: nothing to compare it with");
      Put(*verdict.mutable_details(), "pairs", static_cast<double>(course.pairs));
      SetPlace(verdict, "", kOptimizerStep, course.step_first,
               course.last ? course.last->step : course.step_first,
               std::vector<uint32_t>{key.second});
      out.Add(std::move(verdict));
    }
  }

  // Between steps open_ is empty.
  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(courses_);
  }

 private:
  // Comparisons fail on NaN: what is no count is left out and told.
  static bool IsCount(const std::optional<double>& value) {
    return !value || (*value >= 0 && *value < 0x1p53);
  }

  void Take(const StepEnd& step, uint32_t rank, const StateCounts& now, VerdictSink& out) {
    const bool is_new = !courses_.contains({step.role, rank});
    StateCourse& course = courses_[{step.role, rank}];
    if (is_new) course.step_first = step.step;
    if (!IsCount(now.optimizer) || !IsCount(now.scheduler)) {
      ++course.odd;
      return;
    }
    if (course.last && now.step > course.last->step) Compare(rank, *course.last, now, course, out);
    course.last = now;
  }

  static void Compare(uint32_t rank, const StateCounts& before, const StateCounts& now,
                      StateCourse& course, VerdictSink& out) {
    if (!before.optimizer || !now.optimizer) return;
    ++course.pairs;
    if (*now.optimizer < *before.optimizer) {
      course.ratio = 0;
      if (!std::exchange(course.told, true)) out.Add(Anew(rank, before, now));
      return;
    }
    if (!before.scheduler || !now.scheduler) return;
    if (*now.scheduler < *before.scheduler) {
      course.ratio = 0;
      if (!std::exchange(course.told_schedule, true)) out.Add(ScheduleAnew(rank, before, now));
      return;
    }
    const double steps = *now.optimizer - *before.optimizer;
    if (!(steps >= kFewSteps)) return;
    const double ratio = (*now.scheduler - *before.scheduler) / steps;
    const double whole = std::round(ratio);
    if (!(whole >= 1) || !(std::fabs(ratio - whole) <= kNearWhole * whole)) return;
    if (course.ratio > 0 && course.ratio != whole && !std::exchange(course.told_schedule, true))
      out.Add(OtherRatio(rank, course.ratio, whole, before, now));
    course.ratio = whole;
  }

  static FindingBuilder Begin(v1::Level level, uint32_t rank, const char* op,
                              const StateCounts& before, const StateCounts& now) {
    FindingBuilder found(level, v1::STRENGTH_PROVED);
    found.Samples(2)
        .Witness("checkpoint_before", static_cast<double>(before.step))
        .Witness("checkpoint", static_cast<double>(now.step))
        .At("", op, before.step, now.step, std::vector<uint32_t>{rank});
    return found;
  }

  static v1::Verdict Anew(uint32_t rank, const StateCounts& before, const StateCounts& now) {
    return Begin(v1::LEVEL_ERROR, rank, kOptimizerStep, before, now)
        .Title(kInfo.title)
        .Explain(absl::StrFormat("The optimizer has taken %.0f steps in the checkpoint of step %d "
                                 "and %.0f in that of step %d: its moments were not loaded.",
                                 *before.optimizer, before.step, *now.optimizer, now.step))
        .Cause("optimizer-not-loaded", 0.9)
        .Measured("optimizer's steps lost", *before.optimizer - *now.optimizer, "steps")
        .Threshold(0, "the optimizer's steps rise with the run's")
        .Witness("optimizer_step_before", *before.optimizer)
        .Witness("optimizer_step", *now.optimizer)
        .Fix(
            "Go on from the checkpoint before, and load the optimizer's state too "
            "(optimizer.load_state_dict).")
        .Take();
  }

  static v1::Verdict ScheduleAnew(uint32_t rank, const StateCounts& before,
                                  const StateCounts& now) {
    return Begin(v1::LEVEL_WARNING, rank, kSchedulerStep, before, now)
        .Title("the learning-rate schedule begins anew within a run")
        .Explain(absl::StrFormat("The schedule stands at %.0f in the checkpoint of step %d and at "
                                 "%.0f in that of step %d, while the optimizer went on from %.0f "
                                 "to %.0f.",
                                 *before.scheduler, before.step, *now.scheduler, now.step,
                                 *before.optimizer, *now.optimizer))
        .Cause("schedule-not-loaded", 0.8)
        .Measured("schedule's steps lost", *before.scheduler - *now.scheduler, "steps")
        .Threshold(0, "the schedule's steps rise with the optimizer's")
        .Witness("scheduler_step_before", *before.scheduler)
        .Witness("scheduler_step", *now.scheduler)
        .Fix("Load the schedule's state with the optimizer's (scheduler.load_state_dict).")
        .Take();
  }

  static v1::Verdict OtherRatio(uint32_t rank, double ratio, double other,
                                const StateCounts& before, const StateCounts& now) {
    return Begin(v1::LEVEL_WARNING, rank, kSchedulerStep, before, now)
        .Title("the schedule steps at another pace than before")
        .Explain(absl::StrFormat("Until step %d the schedule took %.0f steps an optimizer's step, "
                                 "since then %.0f: it is as much faster or slower than planned.",
                                 before.step, ratio, other))
        .Cause("schedule-pace", 0.7)
        .Measured("schedule's steps an optimizer's step", other, "steps")
        .Threshold(ratio, "as in the checkpoints before")
        .Witness("pace_before", ratio)
        .Witness("pace", other)
        .Fix(
            "Step the schedule as before: once an optimizer's step, or say by how many processes "
            "it is stepped (Accelerate's split_batches, step_scheduler_with_optimizer).")
        .Take();
  }

  std::map<uint32_t, StateCounts> open_;  // by rank, of this step
  std::map<std::pair<v1::Role, uint32_t>, StateCourse> courses_;
};

}  // namespace

CatalogueEntry optimizer_state() {
  return {&kInfo, [](const Options& /*options*/) -> std::unique_ptr<Rule> {
            return std::make_unique<OptimizerState>();
          }};
}

}  // namespace plumbline::rules
