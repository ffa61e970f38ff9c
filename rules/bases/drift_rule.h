// The base of the rules on drift: the shared run, the times at which it is judged, and the
// reporting of each result once.
//
// A rule judges a site when its tokens have doubled or its steps have grown by a quarter since the
// last time, and at the end of the run. It reports a finding when its level rises, and again if
// another cause has a higher confidence (a report keeps the higher one). If it never had a finding,
// it reports its last verdict at the end. If the record is found untrue later, the cause "noise" is
// withdrawn.
#pragma once

#include <map>

#include "analysis/drift/drift.h"
#include "analysis/frame/frame.h"
#include "base/archive.h"
#include "rules/rule.h"

namespace plumbline::rules {

class DriftRule : public Rule {
 public:
  void Judge(const SiteStep& step, VerdictSink& out) override;
  void JudgeRun(const RunSummary& run, VerdictSink& out) override;
  void Persist(Archive& archive) override;

 protected:
  // Returns the verdict from the site's tokens so far: a finding, a pass, or inconclusive. If the
  // verdict leaves the site empty, this class fills it.
  virtual v1::Verdict JudgeSite(const DriftSite& site) const = 0;
  // Smallest number of tokens for a judgement before the run's end.
  virtual uint64_t first_look() const { return 1024; }

 private:
  struct Reported {
    uint64_t next_tokens = 0;
    size_t next_steps = 0;
    v1::Level level = v1::LEVEL_UNSPECIFIED;
    v1::Cause cause;
    void Persist(Archive& a) { a(next_tokens, next_steps, level, cause); }
  };
  void Look(const DriftSite& site, bool last, VerdictSink& out);

  SharedDriftRun run_;
  std::map<DriftRun::Key, Reported> reported_;
};

}  // namespace plumbline::rules
