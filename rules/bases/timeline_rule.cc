#include "rules/bases/timeline_rule.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace plumbline::rules {
namespace {

constexpr uint64_t kFewestSpans = 3;        // fewer show no habit
constexpr uint64_t kShortWait = 2'000'000;  // ns: passing on a finished batch takes as long

// For a loop's own spans: returns true if the typical span is expensive, not one pause among short
// ones. Consecutive parts of one checkpoint are one event.
bool IsHabitOfLoop(const v1::TimelineWait& wait, uint64_t span) {
  const bool burst = wait.period_ns() > 0 && wait.period_ns() / 2 < wait.median_ns();
  const double common = Share(wait.median_ns(), span) * static_cast<double>(wait.spans());
  return !burst && wait.median_ns() >= kShortWait && common >= kMuchOfLoop;
}

v1::Verdict JudgeSound(const v1::Timeline& timeline) {
  if (const std::string wrong = WrongWith(timeline); !wrong.empty())
    return Inconclusive("wrong-timeline: " + wrong);
  return Inconclusive("no-gpu-events: the trace contains no GPU kernel, copy or memset");
}

// Replaces words about a GPU's trace by words about a loop.
void SpeakOfLoop(TimelineOf whose, v1::Verdict* verdict) {
  const auto report = [](std::string* text) {
    absl::StrReplaceAll({{"the GPU is idle", "the loop waits"},
                         {"The GPU is idle", "The loop waits"},
                         {"the GPU", "the loop"},
                         {"The GPU", "The loop"}},
                        text);
  };
  report(verdict->mutable_reason());
  if (!verdict->has_finding()) return;
  v1::Finding& finding = *verdict->mutable_finding();
  report(finding.mutable_title());
  report(finding.mutable_explanation());
  report(finding.mutable_measured()->mutable_name());
  verdict->add_assumptions("the loop's thread computes when it is outside its declared stages");
  if (whose != TimelineOf::kLoopOfGpu) return;
  finding.set_level(v1::LEVEL_NOTE);
  verdict->add_assumptions("the GPU has no queued work during these host spans");
}

void ReportBottlenecks(const v1::Timeline& t, bool all, v1::Verdict* verdict) {
  const std::vector<timeline::Bottleneck> bottlenecks = timeline::BottlenecksOf(t);
  ReportPaid(bottlenecks, verdict);
  if (bottlenecks.empty() || !all) return;
  for (const char* key : {"bottlenecks", "tolls"}) {  // former name, for one version
    google::protobuf::Struct& shares = PutStruct(*verdict->mutable_details(), key);
    for (const timeline::Bottleneck& bottleneck : bottlenecks)
      Put(shares, std::string(bottleneck.id), bottleneck.share);
  }
}

}  // namespace

void ReportPaid(const std::vector<timeline::Bottleneck>& bottlenecks, v1::Verdict* verdict) {
  if (bottlenecks.size() < 2 || !verdict->has_finding()) return;
  for (const char* key : {"bottleneck", "toll"})  // former name, for one version
    Put(*verdict->mutable_details(), key, std::string(bottlenecks[0].id));
  for (const char* key : {"next_bottleneck", "next_toll"})
    Put(*verdict->mutable_details(), key, std::string(bottlenecks[1].id));
}

TimelineOf WhoseTimeline(const v1::Site& site) {
  if (site.layer() == timeline::kLoopLayer) return TimelineOf::kLoop;
  return site.layer() == timeline::kLoopOfGpuLayer ? TimelineOf::kLoopOfGpu : TimelineOf::kTrace;
}

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string WrongWith(const v1::Timeline& t) {
  constexpr auto kMost = static_cast<uint64_t>(timeline::kMostTime);
  const uint64_t span = t.span_ns();
  if (span > kMost || t.kernel_ns() > kMost || t.start_ns() > timeline::kMostTime ||
      t.start_ns() < -timeline::kMostTime)
    return "a time outside the range of a clock";
  if (t.busy_ns() > span || t.communication_ns() > t.busy_ns() ||
      t.exposed_ns() > t.communication_ns() || t.launch_wait_ns() > span)
    return "a part is longer than the whole";
  if (t.launched_kernels() > t.kernels() || t.short_kernels() > t.kernels())
    return "more kernels of one kind than in total";
  for (const v1::TimelineGap& gap : t.gaps()) {
    if (gap.duration_ns() > span || gap.start_ns() > span - gap.duration_ns() ||
        gap.occurrence() > kMost || gap.name() >= static_cast<uint32_t>(t.names_size()))
      return "a gap outside its window";
  }
  for (const v1::TimelineWait& wait : t.waits()) {
    if (wait.union_ns() > span || wait.idle_ns() > wait.union_ns() || wait.median_ns() > span ||
        wait.period_ns() > span)
      return "a span outside its window";
  }
  for (const v1::TimelineStep& step : t.steps()) {
    if (step.duration_ns() > kMost || step.busy_ns() > step.duration_ns() ||
        step.compute_ns() > step.busy_ns() || step.exposed_ns() > step.busy_ns() ||
        step.start_ns() > timeline::kMostTime || step.start_ns() < -timeline::kMostTime)
      return "a step with a part longer than itself";
  }
  return "";
}

void SetTimelinePlace(const v1::Timeline& timeline, const SiteStep& step, uint32_t rank,
                      v1::Verdict* verdict) {
  int64_t first = step.step, last = step.step;
  if (timeline.steps_size() > 0) {
    first = timeline.steps(0).number();
    last = std::max(first, timeline.steps(timeline.steps_size() - 1).number());
  }
  if (timeline.steps_size() > 0) ReportSteps(first, last, verdict);
  SetPlace(*verdict, step.site.layer(), step.site.op(), first, last, std::vector<uint32_t>{rank});
}

void ReportSteps(int64_t first, int64_t last, v1::Verdict* verdict) {
  if (!verdict->has_finding()) return;
  absl::StrAppend(verdict->mutable_finding()->mutable_explanation(), " Judged steps: ", first,
                  " to ", last, ".");
}

void TimelineRule::Judge(const SiteStep& step, VerdictSink& out) {
  whose_ = WhoseTimeline(step.site);
  if (whose_ != TimelineOf::kTrace && !reads_loops()) return;
  for (const Item& item : step.items) {
    if (!item.evidence->has_timeline()) continue;
    const v1::Timeline& timeline = item.evidence->timeline();
    const bool sound = timeline.span_ns() > 0 && WrongWith(timeline).empty();
    v1::Verdict verdict = sound ? JudgeTimeline(timeline) : JudgeSound(timeline);
    if (whose_ != TimelineOf::kTrace) {
      SpeakOfLoop(whose_, &verdict);
    } else if (sound) {
      ReportBottlenecks(timeline, reports_bottlenecks(), &verdict);
    }
    SetTimelinePlace(timeline, step, item.source->rank(), &verdict);
    out.Add(std::move(verdict));
  }
}

v1::Verdict WaitRule::JudgeTimeline(const v1::Timeline& t) const {
  if (t.launching_threads() == 0)
    return Inconclusive(
        "no-launches: the trace records no kernel launch, so the threads that launch are not "
        "known");
  const auto wait = std::find_if(t.waits().begin(), t.waits().end(),
                                 [&](const auto& w) { return w.cause() == words_.cause; });
  if (wait == t.waits().end()) {
    if (whose() != TimelineOf::kTrace)
      return Inconclusive(absl::StrCat("no-spans: no ", words_.spans, " in the loop"));
    return Inconclusive(absl::StrCat("no-spans: no ", words_.spans,
                                     " on a thread that launches kernels (", words_.absent, ")"));
  }
  const double share = Share(wait->union_ns(), t.span_ns());
  const double idle = Share(wait->idle_ns(), t.span_ns());
  google::protobuf::Struct details;
  Put(details, "share", share);
  Put(details, "idle_share", idle);
  Put(details, "spans", static_cast<double>(wait->spans()));
  Put(details, "median_ms", Milliseconds(wait->median_ns()));
  Put(details, "name", wait->name());
  const std::string words =
      absl::StrFormat("%d %s take %.3g %% of the time; the GPU is idle in %.3g %%", wait->spans(),
                      words_.spans, 100 * share, 100 * idle);
  const std::string more = More(*wait, details);
  if (!(idle >= least_) || wait->idle_spans() < kFewestSpans)
    return Pass(words, std::move(details));
  const bool warns = whose() == TimelineOf::kTrace || IsHabitOfLoop(*wait, t.span_ns());
  FindingBuilder found(warns ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
  found.Title(words_.title)
      .Explain(absl::StrCat(
          absl::StrFormat("%s over %.4g s; the longest is \"%s\", the median is %.4g ms.",
                          Capitalised(words), 1e-9 * static_cast<double>(t.span_ns()), wait->name(),
                          Milliseconds(wait->median_ns())),
          more))
      .Cause(timeline::CauseName(words_.cause), 0.9)
      .Measured("share of the time in which the GPU is idle during these spans", idle, "share")
      .Threshold(least_, "customary")
      .Samples(wait->idle_spans())
      .Witness("span", wait->name())
      .Witness("median_ms", Milliseconds(wait->median_ns()))
      .Fix(words_.fix);
  // A GPU that works independently of the loop may be busy in the loop's waits.
  if (whose() != TimelineOf::kLoopOfGpu)
    found.Lost(1e-9 * static_cast<double>(wait->idle_ns()), whose() == TimelineOf::kTrace);
  *found.verdict().mutable_details() = std::move(details);
  return found.Take();
}

}  // namespace plumbline::rules
