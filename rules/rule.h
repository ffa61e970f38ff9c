// The frame every rule fits into: what it says about itself, what it is given, what it answers.
//
// A rule is a pure function from evidence (plus a short history that the rule object keeps) to
// verdicts. It never sees arrival order, wall-clock time or the host it runs in, so the same
// evidence gives the same verdicts live, after a crash and offline. Not thread-safe: the engine
// calls each rule object from one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "analysis/frame/frame.h"
#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

struct RuleInfo {
  const char* id;     // "group/name", fixed by the contract
  const char* title;  // one line
  v1::Level level;    // the highest level it may reach
  const char* since;  // tool version that first had it
  const char* page;   // Markdown: the rule's manual page, from its own file
  std::span<const OptionInfo> options;
  // Its part of the run's false-alarm budget (statistics/alpha_shares.h): of a rule whose tests may
  // be looked at for ever. All parts together are at most 1; what nobody has is kept for later.
  double alpha_weight = 0;

  std::string_view group() const {
    return std::string_view(id).substr(0, std::string_view(id).find('/'));
  }
};

class Rule {
 public:
  virtual ~Rule() = default;

  // False: somebody else speaks for it (Engine::Tell). Nobody can say that a suppression of it
  // matched nothing because it ran.
  virtual bool judges_evidence() const { return true; }

  // Scalars come by the million: where all that a step has of a site are scalars, it reaches Judge
  // of those rules alone that read it. The answer depends on the site and the options alone.
  virtual bool ReadsScalar(const v1::Site& /*site*/) const { return false; }

  // True: Judge is also shown late evidence (SiteStep::late). What it says of it must not need the
  // step's other items; a rule that remembers keeps late items apart and speaks in JudgeLate.
  virtual bool judges_late() const { return false; }

  // Called for each closed step in the order (attempt, step), then by site (layer, op).
  virtual void Judge(const SiteStep& /*step*/, VerdictSink& /*out*/) {}

  // Called after the last site of a closed step: for rules that look across its sites. Such a rule
  // fills its verdict's layer, op, steps and ranks itself. One that does not is asked once.
  virtual void JudgeStep(const StepEnd& /*step*/, VerdictSink& /*out*/) { judges_steps_ = false; }
  bool judges_steps() const { return judges_steps_; }
  // False: JudgeStep does nothing in a step of which Judge was shown no site, and is not called.
  virtual bool judges_unseen_steps() const { return true; }

  // A log of scalars holds a million steps of one rank, and most tell a rule nothing new. Rules of
  // one mark, which is not nullptr, are shown many such steps one after the other before other
  // rules are: they share with those no work (SiteStep::cache) and nothing else that they change.
  virtual const void* judges_apart() const { return nullptr; }
  // Of rules with a mark: takes as many rows from `first` on as it likes, and says how many; those
  // of one mark say the same. Behind it their state is what Judge and JudgeStep of each row would
  // have made it. All that these would have said is said, and is of the end (JudgeStep) of the last
  // row that was taken; a row of which Judge would say anything is left to Judge. 0: the next row
  // is judged by itself.
  virtual size_t TakeRows(const ScalarRows& /*rows*/, size_t /*first*/, VerdictSink& /*out*/) {
    return 0;
  }

  // Called at once when evidence came late, and when a step with late evidence has become whole.
  virtual void JudgeLate(const RunSummary& /*run*/, VerdictSink& /*out*/) {}

  // Called once when the run ends (or the audit's input does); verdicts over the run as a whole.
  virtual void JudgeRun(const RunSummary& /*run*/, VerdictSink& /*out*/) {}

  // Writes or reads everything that the rule keeps from one step to the next (base/archive.h); its
  // own version first, `archive.Version(1)`, raised whenever what follows changes. Options, and
  // what follows from them, are not kept: an object is read into only where it was made with the
  // same. Called between steps. A rule without memory says so by an empty body.
  virtual void Persist(Archive& archive) = 0;

 private:
  bool judges_steps_ = true;
};

}  // namespace plumbline::rules
