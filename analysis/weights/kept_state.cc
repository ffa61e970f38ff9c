#include "analysis/weights/kept_state.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace plumbline::analysis {
namespace {

FindingBuilder Begin(v1::Level level, uint32_t rank, const char* op, const StateCounts& before,
                     const StateCounts& now) {
  FindingBuilder found(level, v1::STRENGTH_PROVED);
  found.Samples(2)
      .Witness("checkpoint_before", static_cast<double>(before.step))
      .Witness("checkpoint", static_cast<double>(now.step))
      .At("", op, before.step, now.step, std::vector<uint32_t>{rank});
  return found;
}

}  // namespace

v1::Verdict MomentsGone(uint32_t rank, const std::vector<std::string>& gone,
                        const StateCounts& before, const StateCounts& now) {
  const bool counted = before.optimizer && now.optimizer;
  FindingBuilder found =
      Begin(counted ? v1::LEVEL_ERROR : v1::LEVEL_WARNING, rank, kOptimizerStep, before, now);
  const std::string steps =
      counted ? absl::StrFormat(
                    "while the optimizer's step count is %.0f after %.0f: the next steps are "
                    "corrected as if their moments were old.",
                    *now.optimizer, *before.optimizer)
              : absl::StrFormat(
                    "while its groups list %.0f parameters: it continues as a new optimizer.",
                    now.parameters);
  if (counted) {
    found.Witness("optimizer_step_before", *before.optimizer)
        .Witness("optimizer_step", *now.optimizer);
  }
  found
      .Title(counted ? "moments are missing, but the optimizer's step count was kept"
                     : "moments are missing, but the optimizer was kept")
      .Explain(absl::StrFormat(
          "%d of %d parameters have no second moment or momentum, or one of zeros, in the "
          "checkpoint of step %d and had one in that of step %d (the first: %s), %s",
          gone.size(), before.moments.size(), now.step, before.step, gone[0], steps))
      .Cause("moments-lost", 0.9)
      .Measured("parameters without their moments", static_cast<double>(gone.size()), "parameters")
      .Threshold(0, "a parameter of the optimizer keeps its moments")
      .Witness("first_parameter", gone[0])
      .Fix(
          "Continue from the previous checkpoint, and load the whole state of the optimizer. If a "
          "part is reset on purpose, reset its step count too.");
  return found.Take();
}

v1::Verdict StateLost(uint32_t rank, int64_t lost, const StateCounts& now) {
  FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_HEURISTIC);
  found.Title("the optimizer's state was reset within a run")
      .Explain(absl::StrFormat(
          "The step count of the optimizer is %.0f in step %d, the number of steps since step %d. "
          "The checkpoint of that step has no optimizer state: the run continued with new moments.",
          *now.optimizer, now.step, lost))
      .Cause("optimizer-not-loaded", 0.8)
      .Samples(2)
      .Measured("lost optimizer steps", static_cast<double>(lost), "steps")
      .Threshold(0, "the optimizer's step count equals that of the run")
      .Witness("checkpoint_without_state", static_cast<double>(lost))
      .Witness("checkpoint", static_cast<double>(now.step))
      .Witness("optimizer_step", *now.optimizer)
      .Fix(
          "Resume from a checkpoint with the optimizer's state (transformers: optimizer.pt and "
          "scheduler.pt).")
      .At("", kOptimizerStep, lost, now.step, std::vector<uint32_t>{rank});
  return found.Take();
}

namespace {

v1::Verdict StateAnew(uint32_t rank, const StateCounts& before, const StateCounts& now) {
  return Begin(v1::LEVEL_ERROR, rank, kOptimizerStep, before, now)
      .Title("the optimizer's state was reset within a run")
      .Explain(absl::StrFormat("The optimizer's step count was %.0f in step %d and %.0f in step "
                               "%d: its moments restarted at zero.",
                               *before.optimizer, before.step, *now.optimizer, now.step))
      .Cause("optimizer-not-loaded", 0.9)
      .Measured("lost optimizer steps", *before.optimizer - *now.optimizer, "steps")
      .Threshold(0, "the optimizer's step count rises with that of the run")
      .Witness("optimizer_step_before", *before.optimizer)
      .Witness("optimizer_step", *now.optimizer)
      .Fix(
          "Continue from the previous checkpoint, and load the optimizer's state too "
          "(optimizer.load_state_dict).")
      .Take();
}

enum class FallenState { kAnew, kOlder, kOfOthers };

FallenState FallenStateOf(const StateCounts& before, const StateCounts& now) {
  const bool apart = !before.moments.empty() && !now.moments.empty() &&
                     std::none_of(now.moments.begin(), now.moments.end(),
                                  [&](const auto& name) { return before.moments.contains(name); });
  if (apart || (now.named && !(*now.named > 0))) return FallenState::kOfOthers;
  // A step of the run may be several of the optimizer (an epoch).
  const double pace = before.step > 0 ? *before.optimizer / static_cast<double>(before.step) : 1;
  const double most = static_cast<double>(now.step - before.step) * std::max(1.0, pace);
  return *now.optimizer > 1.01 * most + 1 ? FallenState::kOlder : FallenState::kAnew;
}

}  // namespace

v1::Verdict StateFell(uint32_t rank, const StateCounts& before, const StateCounts& now) {
  const FallenState how = FallenStateOf(before, now);
  if (how == FallenState::kAnew) return StateAnew(rank, before, now);
  const bool older = how == FallenState::kOlder;
  return Begin(v1::LEVEL_WARNING, rank, kOptimizerStep, before, now)
      .Title("the optimizer's state is an older or another one")
      .Explain(absl::StrFormat(
          "The optimizer's step count was %.0f in step %d and %.0f in step %d: %s",
          *before.optimizer, before.step, *now.optimizer, now.step,
          older ? "more steps than the run made in between. The state is an older or another one."
                : "the state may be a new one, an older one, or that of other parameters (their "
                  "names are not known, or differ)."))
      .Cause(older ? "older-state" : "other-state", 0.8)
      .Measured("lost optimizer steps", *before.optimizer - *now.optimizer, "steps")
      .Threshold(0, "the optimizer's step count rises with that of the run")
      .Witness("optimizer_step_before", *before.optimizer)
      .Witness("optimizer_step", *now.optimizer)
      .Fix(older ? "If the run was rolled back on purpose, do nothing. Otherwise load weights and "
                   "optimizer from one checkpoint."
                 : "If a new stage trains other parameters, do nothing. Otherwise load the "
                   "optimizer's state too (optimizer.load_state_dict).")
      .Take();
}

v1::Verdict ScheduleAnew(uint32_t rank, const StateCounts& before, const StateCounts& now) {
  FindingBuilder found = Begin(v1::LEVEL_WARNING, rank, kSchedulerStep, before, now);
  const bool counted = before.optimizer && now.optimizer;
  const std::string continued =
      counted ? absl::StrFormat("the optimizer's step count went from %.0f to %.0f",
                                *before.optimizer, *now.optimizer)
              : "the run continued (its optimizer stores no step count)";
  return found.Title("the learning-rate schedule was reset within a run")
      .Explain(absl::StrFormat("The step count of the schedule is %.0f in the checkpoint of step "
                               "%d and %.0f in that of step %d, while %s.",
                               *before.scheduler, before.step, *now.scheduler, now.step, continued))
      .Cause("schedule-not-loaded", 0.8)
      .Measured("lost schedule steps", *before.scheduler - *now.scheduler, "steps")
      .Threshold(0, "the schedule's step count rises with that of the run")
      .Witness("scheduler_step_before", *before.scheduler)
      .Witness("scheduler_step", *now.scheduler)
      .Fix(
          "Load the state of the schedule together with the optimizer's "
          "(scheduler.load_state_dict).")
      .Take();
}

v1::Verdict OtherRatio(uint32_t rank, double ratio, double other, const StateCounts& before,
                       const StateCounts& now) {
  return Begin(v1::LEVEL_WARNING, rank, kSchedulerStep, before, now)
      .Title("the schedule advances at a different speed than before")
      .Explain(
          absl::StrFormat("Until step %d the schedule made %.0f steps per optimizer step, since "
                          "then %.0f: it is faster or slower than planned by this factor.",
                          before.step, ratio, other))
      .Cause("schedule-pace", 0.7)
      .Measured("schedule steps per optimizer step", other, "steps")
      .Threshold(ratio, "as in the checkpoints before")
      .Witness("pace_before", ratio)
      .Witness("pace", other)
      .Fix(
          "Step the schedule as before: once per optimizer step, or once per process if configured "
          "(Accelerate's split_batches, step_scheduler_with_optimizer).")
      .Take();
}

}  // namespace plumbline::analysis
