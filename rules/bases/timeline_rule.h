// Base of the rules that judge how a rank's time was spent: one verdict per rank and trace, at that
// rank's steps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/timeline/timeline.h"
#include "rules/rule.h"

namespace plumbline::rules {

// Site of the evidence that they read.
inline constexpr std::string_view kTimelineOp = "timeline";

// Returns what is wrong with a timeline whose values contradict each other or exceed any clock. If
// nothing is, returns "".
std::string WrongWith(const v1::Timeline& timeline);

// The source of a timeline's time.
enum class TimelineOf {
  kTrace,  // a profiler's trace: the GPU's time
  kLoop,   // a trainer's spans, no GPU (analysis/timeline/loop.h): the time of the loop's thread
  kLoopOfGpu,  // the same, if GPUs continue to work independently of the loop
};
TimelineOf WhoseTimeline(const v1::Site& site);

// Has no state. For a loop, the words "the GPU" become "the loop". If the loop drives a GPU that
// may or may not be idle, a finding is a note.
class TimelineRule : public Rule {
 public:
  void Judge(const SiteStep& step, VerdictSink& out) override;
  // Each Judge sets whose_.
  void Persist(Archive& /*archive*/) override {}

 protected:
  // If false, spans of a loop are no evidence for the rule.
  virtual bool reads_loops() const { return true; }
  // If true, its verdicts on traces carry the shares of all bottlenecks ("bottlenecks"), for the
  // report's last line. Findings of every such rule carry the main one and the next.
  virtual bool reports_bottlenecks() const { return false; }
  // The source of the timeline that is being judged.
  TimelineOf whose() const { return whose_; }
  // Judges a valid timeline with GPU events. The base fills steps and ranks.
  virtual v1::Verdict JudgeTimeline(const v1::Timeline& timeline) const = 0;

 private:
  TimelineOf whose_ = TimelineOf::kTrace;
};

// Adds the main bottleneck and the next one to a finding's details ("bottleneck",
// "next_bottleneck").
void ReportPaid(const std::vector<timeline::Bottleneck>& bottlenecks, v1::Verdict* verdict);

// Adds the steps that were judged to a finding's text. If several blocks or traces have one
// finding, it is reported once, with the steps of all of them, but the numbers are those of one.
void ReportSteps(int64_t first, int64_t last, v1::Verdict* verdict);

// Sets the steps that it covers: the marked ones (also in a finding's text), else the evidence's
// own.
void SetTimelinePlace(const v1::Timeline& timeline, const SiteStep& step, uint32_t rank,
                      v1::Verdict* verdict);

// Judges host spans of one class for which the GPU waits.
class WaitRule : public TimelineRule {
 public:
  struct Words {
    v1::TimelineGap::Cause cause;
    const char* title;   // of a finding
    const char* spans;   // "data-loading spans"
    const char* absent;  // why there may be none, for the inconclusive reason
    const char* fix;
  };
  WaitRule(const Words& words, const Options& options)
      : words_(words), least_(options.Number("share")) {}

 protected:
  v1::Verdict JudgeTimeline(const v1::Timeline& timeline) const override;
  // Returns additional text for a class; appended to the explanation.
  virtual std::string More(const v1::TimelineWait& /*wait*/,
                           google::protobuf::Struct& /*details*/) const {
    return "";
  }

 private:
  Words words_;
  double least_;
};

double Share(uint64_t part, uint64_t whole);
// Share of a loop's own time from which a wait is a warning. Many loops without a GPU load their
// data themselves.
constexpr double kMuchOfLoop = 0.2;
inline double Milliseconds(uint64_t ns) { return static_cast<double>(ns) * 1e-6; }

}  // namespace plumbline::rules
