#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/picture/picture.h"
#include "rules/bases/timeline_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/idle-comb

The GPU is idle repeatedly at the same place of a step: the graph of utilisation looks like a comb.

**Why.** A loader that holds the step for 30 ms of 200 costs 15 % of every GPU of the job: of 64 GPUs ten do nothing,
and no single step looks slow.

**Bad.** `the GPU idles 15 % of the time; 15 % in 12 gaps of up to 31 ms, one each 200 ms, while data are loaded`.

**Good.** `the GPU idles 1.8 % of the time; no gap recurs`.

**How to fix it.**
- `data-loading`: more workers, `pin_memory=True`, `prefetch_factor`; decode and tokenise ahead of the run.
- `checkpoint`: save asynchronously (`torch.distributed.checkpoint.async_save`), or less often.
- `garbage-collection`: `gc.disable()` and `gc.collect()` at the same step on all ranks.
- `synchronisation`: remove `.item()`, `.cpu()` and prints of the loss from each step; log every n-th step.
- `compilation`: mark what changes its shape as dynamic, or pad.
- `communication`: see `performance/exposed-communication`.
- `unknown`: record with `with_stack=True`, and look at the host's thread in the gap that the witness names.

**What it checks.** Of a trace, U being the length of a union of intervals: idle = 1 − U(kernels, copies, memsets) / span, from
the start of the first to the end of the last. All GPU events count, whatever they are called and whether their launch was recorded or
not: with only those that a launch record names, a run that idles 1.8 % reads 17.1 %. Gaps of at least 1 ms are grouped by the
GPU operation that ends them. A group recurs where at least three of its gaps are 3 % of a step or longer, three
quarters of the distances between these (counted in occurrences of that operation) are within 2 % of their median,
and they cover half of the span. A finding where a group recurs; a `warning` from 5 % of the span on, else a `note`.

*The cause* of a gap is taken from the thread that launched the first kernel after it: the first of garbage collection,
checkpoint, data loading, compilation and communication whose spans there cover half of the gap; else `synchronisation`,
where a call that waits for the GPU was open as the gap began and returned right then; else `unknown`. Of a comb: what holds half of its time.

*Of a trainer's own spans* (`run.span`, and those that `run.watch` makes by itself: data, full garbage collections, the wait for the last gradients;
live, and from a run record) the loop of the thread that ends the steps takes the place of the GPU, in blocks of 16,
later 64 steps: it waits in spans of
data, checkpoints, compilation and garbage collection, and whatever else it does is work. So each gap has its cause.
In front of a GPU a finding is a note.

**Strength.** `statistical`, measured: of 6,400 simulated healthy ranks (16 steps; in each a gap of up to 4 % of it at a random place) none
got a warning, so that fewer than 0.05 % do (95 %), and 0.3 % a note: three gaps can be evenly spaced by chance. The 5 %
between note and warning is customary. Of a trainer's own spans it is `heuristic`: on a busy machine any loop
waits more, and the share is that machine's.

**Inconclusive when** the trace has no GPU events, or idles more than 5 % and marks fewer than three steps; and where no step is marked and
no cause above is at work: it may be a server that waits for its next request. In a trace that neither marks steps nor shows a gradient or an
optimizer, spans that load data or wait for the GPU count as no cause: so does a server wait for requests.

**What it cannot see.** Idle time that does not recur (its share is in the details); multiprocessors that idle inside of a kernel; a
host thread that the profiler did not record.

**Cost.** One sort of a trace's GPU events.
)page";

constexpr OptionInfo kOptions[] = {
    {"share", OptionInfo::Type::kNumber, "of the span", "0.05",
     "share from which recurring gaps are a warning: 5 % is 5 %: one GPU in twenty", "", 0, 1},
};

constexpr RuleInfo kInfo = {"performance/idle-comb",
                            "the GPU is idle in a recurring pattern",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr double kMuchIdle = 0.05;
// Measured; the rule's page has the conditions.
constexpr double kFalseWarnings = 0.0005, kFalseNotes = 0.005;
constexpr size_t kFewestSteps = 3;

const char* TitleOf(v1::TimelineGap::Cause cause) {
  switch (cause) {
    case v1::TimelineGap::CAUSE_GARBAGE_COLLECTION:
      return "the GPU is idle repeatedly during garbage collection";
    case v1::TimelineGap::CAUSE_CHECKPOINT:
      return "the GPU is idle repeatedly while a checkpoint is written";
    case v1::TimelineGap::CAUSE_DATA_LOADING:
      return "the GPU is idle repeatedly while data are loaded";
    case v1::TimelineGap::CAUSE_COMPILATION:
      return "the GPU is idle repeatedly while code is compiled";
    case v1::TimelineGap::CAUSE_COMMUNICATION:
      return "the GPU is idle repeatedly while the host communicates";
    case v1::TimelineGap::CAUSE_SYNCHRONISATION:
      return "the GPU is idle repeatedly after the host waited for it";
    default:
      return kInfo.title;
  }
}

const char* FixOf(v1::TimelineGap::Cause cause) {
  switch (cause) {
    case v1::TimelineGap::CAUSE_GARBAGE_COLLECTION:
      return "Call gc.disable(), and gc.collect() every few hundred steps, at the same step on all "
             "ranks.";
    case v1::TimelineGap::CAUSE_CHECKPOINT:
      return "Save asynchronously (torch.distributed.checkpoint.async_save), or less often.";
    case v1::TimelineGap::CAUSE_DATA_LOADING:
      return "Use more loader workers, pin_memory, prefetch_factor; decode and tokenise before the "
             "run.";
    case v1::TimelineGap::CAUSE_COMPILATION:
      return "Mark dimensions that change as dynamic, or pad them, so that nothing is compiled "
             "again.";
    case v1::TimelineGap::CAUSE_COMMUNICATION:
      return "Start collectives earlier, and do not wait for them on the host.";
    case v1::TimelineGap::CAUSE_SYNCHRONISATION:
      return "Remove .item(), .cpu() and prints of the loss from the step, or call them every n-th "
             "step.";
    default:
      return "Record a trace with with_stack=True, and look at the host's work in the gap of the "
             "witness.";
  }
}

class IdleComb : public TimelineRule {
 public:
  explicit IdleComb(const Options& options) : warning_(options.Number("share")) {}

 protected:
  bool reports_bottlenecks() const override { return true; }
  v1::Verdict JudgeTimeline(const v1::Timeline& t) const override {
    const double idle = 1 - Share(t.busy_ns(), t.span_ns());
    const timeline::Comb comb = timeline::FindComb(t);
    const size_t steps = timeline::StepsWithin(t);
    google::protobuf::Struct details = Describe(t, comb, idle);
    Put(details, "steps", static_cast<double>(steps));
    if (idle > kMuchIdle && steps < kFewestSteps && (steps > 0 || comb.gaps == 0)) {
      return Inconclusive(
          absl::StrFormat("few-steps: %d steps are marked, and the GPU is idle %.3g %% of the "
                          "time; the rule cannot find a recurring pattern",
                          steps, 100 * idle),
          std::move(details));
    }
    if (comb.gaps > 0 && !IsLoop(steps, comb)) {
      return Inconclusive(
          absl::StrFormat(
              "no-steps: %d gaps recur, %.3g %% of the time, but the trace has no step marks and "
              "no known cause; a server that waits for requests looks the same",
              comb.gaps, 100 * Share(static_cast<uint64_t>(comb.time_ns), t.span_ns())),
          std::move(details));
    }
    if (comb.gaps == 0) {
      return Pass(absl::StrFormat("the GPU is idle %.3g %% of the time; no gap recurs", 100 * idle),
                  std::move(details));
    }
    v1::Verdict verdict = Found(t, comb, idle);
    *verdict.mutable_details() = std::move(details);
    if (whose() == TimelineOf::kTrace)
      verdict.add_assumptions("the profiler recorded every GPU event of the process");
    return verdict;
  }

 private:
  static google::protobuf::Struct Describe(const v1::Timeline& t, const timeline::Comb& comb,
                                           double idle) {
    google::protobuf::Struct details;
    Put(details, "idle_share", idle);
    Put(details, "gaps", static_cast<double>(comb.gaps));
    Put(details, "recurring_share", Share(static_cast<uint64_t>(comb.time_ns), t.span_ns()));
    Put(details, "longest_gap_ms", static_cast<double>(comb.longest_ns) * 1e-6);
    Put(details, "period_ms", static_cast<double>(comb.period_ns) * 1e-6);
    Put(details, "cause", timeline::CauseName(comb.cause));
    return details;
  }

  static std::string CauseWords(const timeline::Comb& comb) {
    if (comb.cause == v1::TimelineGap::CAUSE_UNKNOWN)
      return "The trace shows no known cause in them.";
    return absl::StrFormat("%s holds %.0f %% of their time.",
                           Capitalised(timeline::CauseName(comb.cause)), 100 * comb.cause_share);
  }

  // Returns true if the trace shows a loop. A trace without steps may be of a server that waits for
  // requests, so it counts as a loop only if the cause of the gaps is known.
  static bool IsLoop(size_t steps, const timeline::Comb& comb) {
    return steps >= kFewestSteps || comb.cause != v1::TimelineGap::CAUSE_UNKNOWN;
  }

  v1::Verdict Found(const v1::Timeline& t, const timeline::Comb& comb, double idle) const {
    const double share = Share(static_cast<uint64_t>(comb.time_ns), t.span_ns());
    const bool trace = whose() == TimelineOf::kTrace;
    const bool warns = share >= warning_ && (trace || share >= kMuchOfLoop);
    FindingBuilder found(warns ? v1::LEVEL_WARNING : v1::LEVEL_NOTE,
                         trace ? v1::STRENGTH_STATISTICAL : v1::STRENGTH_HEURISTIC);
    const std::string& name = t.names(static_cast<int>(comb.longest->name()));
    found.Title(TitleOf(comb.cause))
        .Explain(absl::StrFormat(
            "The GPU is idle %.3g %% of %.4g s: %.3g %% in %d gaps that recur every %.4g ms. The "
            "longest takes %.4g ms, starts at %.4g ms, and is before \"%s\". %s",
            100 * idle, 1e-9 * static_cast<double>(t.span_ns()), 100 * share, comb.gaps,
            static_cast<double>(comb.period_ns) * 1e-6, static_cast<double>(comb.longest_ns) * 1e-6,
            Milliseconds(comb.longest->start_ns()), name, CauseWords(comb)))
        .Cause(timeline::CauseName(comb.cause),
               comb.cause == v1::TimelineGap::CAUSE_UNKNOWN ? 0.5 : 0.9)
        .Measured("share of the time in recurring gaps", share, "share")
        .Threshold(warning_, "5 %: one GPU in twenty")
        .Samples(comb.gaps)
        .Witness("gap_from_ms", Milliseconds(comb.longest->start_ns()))
        .Witness("gap_ms", static_cast<double>(comb.longest_ns) * 1e-6)
        .Witness("ended_by", name)
        .Fix(FixOf(comb.cause));
    // The false-alarm rates were measured on simulated GPUs. They do not hold for a loop on a busy
    // machine.
    if (trace) found.FalseAlarm("measured", warns ? kFalseWarnings : kFalseNotes);
    Draw(t, comb, found.finding());
    if (!trace) Put(*LanesOf(found.finding()), "lane", "loop");
    return found.Take();
  }

  static google::protobuf::Struct* LanesOf(v1::Finding& finding) {
    return (*finding.mutable_witness()->mutable_fields())["lanes"].mutable_struct_value();
  }

  // Adds a drawing of the window around the longest gap, and all recurring gaps by time: start,
  // length, and the class of the host span that covers them. `host` names the span that covers the
  // longest gap, if known.
  static void Draw(const v1::Timeline& t, const timeline::Comb& comb, v1::Finding& finding) {
    google::protobuf::Struct& lanes = PutStruct(*finding.mutable_witness(), "lanes");
    std::vector<double> gap_from, gap_ms, gap_cause, step, step_from, step_ms, step_idle;
    std::vector<size_t> long_enough;
    size_t longest = 0;
    for (int i = 0; i < t.gaps_size(); ++i) {
      if (t.gaps(i).name() != comb.longest->name()) continue;
      if (&t.gaps(i) == comb.longest) longest = long_enough.size();
      long_enough.push_back(static_cast<size_t>(i));
    }
    for (const size_t i : Evenly(long_enough.size(), kMostInRow, {longest})) {
      const v1::TimelineGap& gap = t.gaps(static_cast<int>(long_enough[i]));
      gap_from.push_back(Milliseconds(gap.start_ns()));
      gap_ms.push_back(Milliseconds(gap.duration_ns()));
      gap_cause.push_back(gap.cause() == comb.cause ? 1 : 0);
    }
    for (const size_t i : Evenly(static_cast<size_t>(t.steps_size()), kMostInRow)) {
      const v1::TimelineStep& one = t.steps(static_cast<int>(i));
      step.push_back(static_cast<double>(one.number()));
      step_from.push_back(1e-6 * static_cast<double>(one.start_ns()));
      step_ms.push_back(Milliseconds(one.duration_ns()));
      step_idle.push_back(1 - Share(one.busy_ns(), one.duration_ns()));
    }
    Put(lanes, "span_ms", Milliseconds(t.span_ns()));
    Put(lanes, "longest_from_ms", Milliseconds(comb.longest->start_ns()));
    Put(lanes, "longest_ms", Milliseconds(comb.longest->duration_ns()));
    const bool reported = timeline::LongestGap(t, comb.cause) == comb.longest;
    for (const v1::TimelineWait& wait : t.waits()) {
      if (reported && wait.cause() == comb.cause && !wait.name().empty())
        Put(lanes, "host", wait.name());
    }
    PutNumbers(lanes, "gap_from_ms", gap_from);
    PutNumbers(lanes, "gap_ms", gap_ms);
    PutNumbers(lanes, "gap_by_host", gap_cause);
    PutNumbers(lanes, "step", step);
    PutNumbers(lanes, "step_from_ms", step_from);
    PutNumbers(lanes, "step_ms", step_ms);
    PutNumbers(lanes, "step_idle", step_idle);
  }

  double warning_;
};

}  // namespace

CatalogueEntry idle_comb() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<IdleComb>(options);
          }};
}

}  // namespace plumbline::rules
