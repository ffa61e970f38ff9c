#include "analysis/processes/stopped_verdict.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/processes/host_command.h"
#include "base/printable.h"

namespace plumbline::analysis {
namespace {

double SecondsOf(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// Returns nullptr if no stage is known.
const char* StageWord(v1::Span::Kind stage) {
  switch (stage) {
    case v1::Span::KIND_DATA:
      return "data";
    case v1::Span::KIND_FORWARD:
      return "forward";
    case v1::Span::KIND_BACKWARD:
      return "backward";
    case v1::Span::KIND_OPTIMIZER:
      return "optimizer";
    case v1::Span::KIND_COLLECTIVE:
      return "collective";
    case v1::Span::KIND_CHECKPOINT:
      return "checkpoint";
    case v1::Span::KIND_EVALUATION:
      return "evaluation";
    case v1::Span::KIND_COMPILE:
      return "compile";
    case v1::Span::KIND_PAUSE:
      return "pause";
    case v1::Span::KIND_OTHER:
      return "other";
    default:
      return nullptr;
  }
}

// Returns the last activity of the first of the ranks.
std::string DidLast(const v1::StepsStopped& s) {
  std::string text = s.in_step()
                         ? absl::StrCat("it is in step ", s.step(), ", between two stages")
                         : absl::StrCat("it ended step ", s.step(), " and started no other");
  if (const char* stage = StageWord(s.last_stage()))
    absl::StrAppend(&text, "; its last stage was ", stage);
  return text;
}

std::string ExplainStop(const v1::StepsStopped& s) {
  std::string text = absl::StrCat(
      "No step has started for ", DurationText(SecondsOf(s.still_ns())), " after step ", s.step(),
      ", ",
      s.step_ns() == 0 ? "and too few steps were observed to know how long one takes"
                       : absl::StrFormat("and a step takes %.3g s", SecondsOf(s.step_ns())),
      ".");
  absl::StrAppend(&text, s.ranks_size() == 1
                             ? " The process is alive: its heartbeats arrive."
                             : absl::StrCat(" All ", s.ranks_size(),
                                            " processes are alive: their heartbeats arrive."));
  absl::StrAppend(&text, " No pause, evaluation or checkpoint is declared.");
  if (s.ranks_size() > 0) absl::StrAppend(&text, " Rank ", s.ranks(0), ": ", DidLast(s), ".");
  return text;
}

}  // namespace

std::string DurationText(double seconds) {
  if (seconds < 120) return absl::StrFormat("%.3g s", seconds);
  if (seconds < 7200) return absl::StrFormat("%.3g min", seconds / 60);
  return absl::StrFormat("%.3g h", seconds / 3600);
}

v1::Verdict StepsStoppedVerdict(const v1::StepsStopped& s) {
  FindingBuilder found;
  SetPlace(found.verdict(), "", "step", s.step(), s.step(), s.ranks());
  found.Level(s.still_ns() >= s.error_ns() ? v1::LEVEL_ERROR : v1::LEVEL_WARNING)
      .Strength(v1::STRENGTH_PROVED)
      .Title("steps stopped: the trainer is alive but starts no step")
      .Explain(ExplainStop(s))
      .Cause(s.in_step() ? "between-stages" : "between-steps", 1)
      .Measured("time without a step", SecondsOf(s.still_ns()), "s")
      .Threshold(SecondsOf(s.threshold_ns()),
                 s.step_ns() == 0
                     ? "up to 5 times liveness.between_steps_seconds, because the length of a step "
                       "is not known"
                     : "the longer of liveness.between_steps_seconds and 20 median steps")
      .Fix(absl::StrCat(
          "Print the stack of the main thread with `py-spy dump -p ",
          s.pid() <= 0 ? "PID" : absl::StrCat(s.pid()), "` on ",
          s.host().empty() ? "its host" : "host " + Printable(s.host()),
          ". It shows the line that blocks, often next(loader). If the wait is intended, declare "
          "it: `with run.pause():`. After the last step call `run.finish()`."));
  if (s.ranks_size() > 0)
    found.Witness("last", absl::StrCat("rank ", s.ranks(0), ": ", DidLast(s)));
  google::protobuf::Struct& details = *found.verdict().mutable_details();
  Put(details, "kind", s.in_step() ? "between-stages" : "between-steps");
  Put(details, "step", static_cast<double>(s.step()));
  Put(details, "still_seconds", SecondsOf(s.still_ns()));
  Put(details, "step_seconds", SecondsOf(s.step_ns()));
  if (const char* stage = StageWord(s.last_stage())) Put(details, "last_stage", stage);
  if (const std::string stack = StackCommand(s.host(), s.pid()); !stack.empty())
    Put(details, "command", stack);
  return found.Take();
}

}  // namespace plumbline::analysis
