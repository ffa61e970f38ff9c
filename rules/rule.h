// The interface of every rule: its description, its input and its verdicts.
//
// A rule is a pure function from evidence (plus a short history that the rule object keeps) to
// verdicts. It never sees arrival order, wall-clock time or the host it runs on, so the same
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
#include "rules/analysis_names.h"

namespace plumbline::rules {

struct RuleInfo {
  const char* id;     // "group/name", fixed by the contract
  const char* title;  // one line
  v1::Level level;    // the highest level it may reach
  const char* since;  // tool version that first had it
  const char* page;   // Markdown: the rule's manual page, in its own file
  std::span<const OptionInfo> options;
  // Its part of the run's false-alarm budget (statistics/alpha_shares.h), for a rule whose tests
  // run repeatedly. All parts together are at most 1; the rest is reserved.
  double alpha_weight = 0;
  // Of a site with kSeriesDecides points or more it always has a verdict: no later point is due.
  bool decides_early = false;
  static constexpr uint64_t kSeriesDecides = 100;

  std::string_view group() const {
    return std::string_view(id).substr(0, std::string_view(id).find('/'));
  }
};

class ScalarRule;

class Rule {
 public:
  virtual ~Rule() = default;

  // Returns false if another component reports its findings (Engine::Emit). The engine then does
  // not know whether the rule ran, so it does not report a suppression of it as unused.
  virtual bool judges_evidence() const { return true; }

  // Returns this rule as one that reads scalars; nullptr if it reads none.
  virtual ScalarRule* scalars() { return nullptr; }

  // If true, Judge also receives late evidence (SiteStep::late). Its verdict must not need the
  // step's other items. A rule with a history keeps late items separate and reports in JudgeLate.
  virtual bool judges_late() const { return false; }

  // Called for each closed step in the order (attempt, step), then by site (layer, op).
  virtual void Judge(const SiteStep& /*step*/, VerdictSink& /*out*/) {}

  // Called after the last site of a closed step, for rules that compare its sites. Such a rule sets
  // its verdict's layer, op, steps and ranks itself. If a rule does not override this, it is called
  // once.
  virtual void JudgeStep(const StepEnd& /*step*/, VerdictSink& /*out*/) { judges_steps_ = false; }
  bool judges_steps() const { return judges_steps_; }

  // Called when late evidence has arrived, and when a step with late evidence is complete.
  virtual void JudgeLate(const RunSummary& /*run*/, VerdictSink& /*out*/) {}

  // Called once when the run, or the audit's input, ends: verdicts over the whole run.
  virtual void JudgeRun(const RunSummary& /*run*/, VerdictSink& /*out*/) {}

  // Writes or reads all state that the rule keeps between steps (base/archive.h), beginning with
  // its own version, `archive.Version(1)`, which must be raised with each change of the rest.
  // Options, and values that follow from them, are not stored: an object may be read only into one
  // that was made with the same options. Called between steps. A rule without state has an empty
  // body.
  virtual void Persist(Archive& archive) = 0;

 private:
  bool judges_steps_ = true;
};

// A rule that reads scalars. A run may have millions of them, and a log a million steps of one
// rank, most of which add nothing for a rule.
class ScalarRule : public Rule {
 public:
  ScalarRule* scalars() final { return this; }

  // If all of a site's evidence in a step is scalars, the rule gets it in Judge only if this
  // returns true. The result must depend on the site and the options alone.
  virtual bool ReadsScalar(const v1::Site& site) const = 0;

  // If false, JudgeStep does nothing for a step without a call of Judge, and is not called.
  virtual bool judges_unseen_steps() const { return true; }

  // Returns the rule's mark. Rules with the same mark, if it is not nullptr, receive many steps of
  // one rank in a row before other rules do. They must share with other rules no work
  // (SiteStep::cache) and no other state that they change.
  virtual const void* judges_apart() const { return nullptr; }
  // For rules with a mark: takes any number of rows from `first` on and returns that number. Rules
  // of one mark must return the same number. Afterwards their state must equal that after Judge and
  // JudgeStep of each row. Their verdicts must be those of the end (JudgeStep) of the last row
  // taken. If Judge would report something for a row, the row is left to Judge. If it returns 0,
  // the next row is judged individually.
  virtual size_t TakeRows(const ScalarRows& /*rows*/, size_t /*first*/, VerdictSink& /*out*/) {
    return 0;
  }
};

// Returns true if the rule reads the scalars of the site.
inline bool Reads(Rule* rule, const v1::Site& site) {
  const ScalarRule* const scalars = rule->scalars();
  return scalars != nullptr && scalars->ReadsScalar(site);
}

}  // namespace plumbline::rules
