#include "analysis/weights/kept_state.h"

#include "absl/strings/str_format.h"

namespace plumbline::rules {
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
                    "while the optimizer's step is %.0f after %.0f: the next steps "
                    "are corrected as if their moments were old.",
                    *now.optimizer, *before.optimizer)
              : absl::StrFormat("while its groups list %.0f parameters: it goes on as a new one.",
                                now.parameters);
  if (counted) {
    found.Witness("optimizer_step_before", *before.optimizer)
        .Witness("optimizer_step", *now.optimizer);
  }
  found
      .Title(counted ? "moments are gone while the optimizer's step is kept"
                     : "moments are gone while the optimizer is kept")
      .Explain(absl::StrFormat(
          "%d of %d parameters have no second moment or momentum, or one of zeros, in the "
          "checkpoint of step %d and had one in that of step %d (the first: %s), %s",
          gone.size(), before.moments.size(), now.step, before.step, gone[0], steps))
      .Cause("moments-lost", 0.9)
      .Measured("parameters whose moments are gone", static_cast<double>(gone.size()), "parameters")
      .Threshold(0, "a parameter that is held keeps its moments")
      .Witness("first_parameter", gone[0])
      .Fix(
          "Go on from the checkpoint before, and load the whole state of the optimizer; where a "
          "part is reset on purpose, reset its step too.");
  return found.Take();
}

v1::Verdict StateLost(uint32_t rank, int64_t lost, const StateCounts& now) {
  FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_HEURISTIC);
  found.Title("the optimizer begins anew within a run")
      .Explain(absl::StrFormat(
          "The optimizer has taken %.0f steps in step %d, which are those since step %d. The "
          "checkpoint of that step has no state of it: the run went on with new moments.",
          *now.optimizer, now.step, lost))
      .Cause("optimizer-not-loaded", 0.8)
      .Samples(2)
      .Measured("optimizer's steps lost", static_cast<double>(lost), "steps")
      .Threshold(0, "the optimizer has taken the run's steps")
      .Witness("checkpoint_without_state", static_cast<double>(lost))
      .Witness("checkpoint", static_cast<double>(now.step))
      .Witness("optimizer_step", *now.optimizer)
      .Fix(
          "Go on from a checkpoint that has the optimizer's state (transformers: optimizer.pt and "
          "scheduler.pt).")
      .At("", kOptimizerStep, lost, now.step, std::vector<uint32_t>{rank});
  return found.Take();
}

v1::Verdict StateAnew(uint32_t rank, const StateCounts& before, const StateCounts& now) {
  return Begin(v1::LEVEL_ERROR, rank, kOptimizerStep, before, now)
      .Title("the optimizer begins anew within a run")
      .Explain(absl::StrFormat("The optimizer had taken %.0f steps in step %d and %.0f in step "
                               "%d: its moments began anew.",
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

v1::Verdict ScheduleAnew(uint32_t rank, const StateCounts& before, const StateCounts& now) {
  FindingBuilder found = Begin(v1::LEVEL_WARNING, rank, kSchedulerStep, before, now);
  const bool counted = before.optimizer && now.optimizer;
  const std::string went_on = counted ? absl::StrFormat("the optimizer went on from %.0f to %.0f",
                                                        *before.optimizer, *now.optimizer)
                                      : "the run went on (its optimizer keeps no steps)";
  return found.Title("the learning-rate schedule begins anew within a run")
      .Explain(absl::StrFormat("The schedule stands at %.0f in the checkpoint of step %d and at "
                               "%.0f in that of step %d, while %s.",
                               *before.scheduler, before.step, *now.scheduler, now.step, went_on))
      .Cause("schedule-not-loaded", 0.8)
      .Measured("schedule's steps lost", *before.scheduler - *now.scheduler, "steps")
      .Threshold(0, "the schedule's steps rise with the run's")
      .Witness("scheduler_step_before", *before.scheduler)
      .Witness("scheduler_step", *now.scheduler)
      .Fix("Load the schedule's state with the optimizer's (scheduler.load_state_dict).")
      .Take();
}

v1::Verdict OtherRatio(uint32_t rank, double ratio, double other, const StateCounts& before,
                       const StateCounts& now) {
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

}  // namespace plumbline::rules
