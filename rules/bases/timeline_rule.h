// Rules that judge where a rank's time went: one verdict a rank and trace, at that rank's steps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/timeline/timeline.h"
#include "rules/rule.h"

namespace plumbline::rules {

// Site of the evidence that they read.
inline constexpr std::string_view kTimelineOp = "timeline";

// A timeline whose figures contradict each other, or are beyond any clock: "" where all is well.
std::string WrongWith(const v1::Timeline& timeline);

// Whose time a timeline is.
enum class TimelineOf {
  kTrace,      // a profiler's trace: of the GPU
  kLoop,       // a trainer's spans, no GPU (analysis/timeline/loop.h): of the loop's thread
  kLoopOfGpu,  // the same where GPUs work on behind the loop
};
TimelineOf WhoseTimeline(const v1::Site& site);

// Remembers nothing. Of a loop the words "the GPU" become "the loop", and where a GPU stands behind
// it, of which nobody knows whether it idles, a finding is a note.
class TimelineRule : public Rule {
 public:
  void Judge(const SiteStep& step, VerdictSink& out) override;
  // whose_ is set by each Judge.
  void Persist(Archive& /*archive*/) override {}

 protected:
  // False: spans of a loop are no evidence for the rule.
  virtual bool reads_loops() const { return true; }
  // True: its verdicts of traces carry the shares of all tolls ("tolls"), for the report's last
  // line. Findings of any such rule carry the one that is paid, and the next.
  virtual bool tells_tolls() const { return false; }
  // Whose it is that is being judged.
  TimelineOf whose() const { return whose_; }
  // Of a sound timeline with GPU events. Steps and ranks are filled by the base.
  virtual v1::Verdict JudgeTimeline(const v1::Timeline& timeline) const = 0;

 private:
  TimelineOf whose_ = TimelineOf::kTrace;
};

// The toll that is paid and the one behind it, in a finding's details ("toll", "next_toll").
void TellPaid(const std::vector<timeline::Toll>& tolls, v1::Verdict* verdict);

// Says in a finding's words which steps it was judged of: several blocks or traces with one finding
// are told once, at the steps of all of them, and the numbers are those of one.
void TellSteps(int64_t first, int64_t last, v1::Verdict* verdict);

// The steps that it reaches over: those marked (told in a finding's words, too), else the
// evidence's own.
void SetTimelinePlace(const v1::Timeline& timeline, const SiteStep& step, uint32_t rank,
                      v1::Verdict* verdict);

// Host spans of one class that keep the GPU waiting.
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
  // What else a class has to say; appended to the explanation.
  virtual std::string More(const v1::TimelineWait& /*wait*/,
                           google::protobuf::Struct& /*details*/) const {
    return "";
  }

 private:
  Words words_;
  double least_;
};

double Share(uint64_t part, uint64_t whole);
// Share of a loop's own time from which a wait is a warning: many a loop without a GPU loads its
// data itself.
constexpr double kMuchOfLoop = 0.2;
inline double Milliseconds(uint64_t ns) { return static_cast<double>(ns) * 1e-6; }

}  // namespace plumbline::rules
