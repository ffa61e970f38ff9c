// The base of the rules on drift: the shared run, the times at which it is judged, and the
// reporting of each result once.
//
// A rule judges a site when its tokens have doubled or its steps have grown by a quarter since the
// last time, and at the end of the run. It reports a finding when its level rises, if another cause
// has a higher confidence, when the worst k3 doubles, when the drift ends, and again at the end of
// the run if there were more steps. Each report replaces the one before (Report): it has the level
// of the worst look and states the worst and the newest steps. If it never had a finding, it
// reports its last verdict at the end. If a later look finds a mark that does not show the cause,
// the cause "noise" is withdrawn.
#pragma once

#include <map>

#include "analysis/drift/drift.h"
#include "analysis/frame/frame.h"
#include "base/archive.h"
#include "rules/rule.h"

namespace plumbline::rules {

// Adds the course of the site's lag-0 tokens to a finding: the worst and the newest steps, and the
// step in which the drift ended. Sets `steps_judged`, by which a report knows the newest verdict.
void StateCourse(const DriftCourse& course, const DriftSite& site, v1::Verdict& verdict);

class DriftRule : public Rule {
 public:
  void Judge(const SiteStep& step, VerdictSink& out) override;
  void JudgeRun(const RunSummary& run, VerdictSink& out) override;
  void Persist(Archive& archive) override;

 protected:
  // Returns the verdict from the site's tokens so far: a finding, a pass, or inconclusive. If the
  // verdict leaves the site empty, this class fills it.
  virtual v1::Verdict JudgeSite(const DriftSite& site) const = 0;
  // Returns true if the findings describe the drift of lag-0 tokens. If false, no course is stated,
  // and a finding is reported only when its level rises or another cause has a higher confidence.
  virtual bool follows_course() const { return true; }
  // Smallest number of tokens for a judgement before the run's end.
  virtual uint64_t first_look() const { return 1024; }
  // Keeps the verdict if no finding is kept yet, or if it is as loud and its cause as sure. Returns
  // true if the level rose or the cause changed.
  static bool Keep(v1::Verdict verdict, v1::Verdict& kept);

 private:
  struct Reported {
    uint64_t next_tokens = 0;
    size_t next_steps = 0;
    v1::Verdict kept;  // the finding of the worst look; not a finding before there is one
    double worst = 0;  // the worst k3 that was reported
    bool ended = false;
    uint64_t batches = 0;  // at the last report
    void Persist(Archive& a) { a(next_tokens, next_steps, kept, worst, ended, batches); }
  };
  void Look(const DriftSite& site, bool last, VerdictSink& out);

  SharedDriftRun run_;
  std::map<DriftRun::Key, Reported> reported_;
};

}  // namespace plumbline::rules
