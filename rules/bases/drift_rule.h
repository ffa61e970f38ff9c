// The frame of the rules on drift: the shared run, when to look, and telling a thing once.
//
// A rule looks when a site's tokens have doubled or its steps have grown by a quarter since it last
// looked, and at the end of the run. It tells a finding when its level rises, and again when
// another cause is surer than the one it told (a report keeps the surer one); where it never found
// anything, its last verdict is told at the end. "Noise" is taken back when the record proves
// untrue later.
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
  // What the site's tokens so far show: a finding, a pass, or inconclusive. The site is filled by
  // the frame where the verdict leaves it empty.
  virtual v1::Verdict JudgeSite(const DriftSite& site) const = 0;
  // The fewest tokens at which it looks before the run's end.
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
