// The frame of the rules on losses: the run that they share, what each makes of its events, and a
// last word on each series that it never had a finding on.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/archive.h"
#include "rules/bases/loss_run.h"
#include "rules/rule.h"

namespace plumbline::rules {

class LossRule : public Rule {
 public:
  explicit LossRule(const Options& options) : roles_(options.roles()) {}
  bool ReadsScalar(const v1::Site& site) const override { return LossRun::Reads(site, roles_); }
  bool judges_unseen_steps() const override { return false; }
  void Judge(const SiteStep& step, VerdictSink& out) override;
  void JudgeStep(const StepEnd& step, VerdictSink& out) override;
  const void* judges_apart() const override { return LossRun::Mark(); }
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& out) override;
  bool judges_late() const override { return true; }
  void JudgeLate(const RunSummary& run, VerdictSink& out) override;
  void JudgeRun(const RunSummary& run, VerdictSink& out) override;
  // What derives from it keeps nothing else. Between calls heard_late_ has heard all; nothing_ is
  // empty.
  void Persist(Archive& archive) final;

 protected:
  // What the rule said of a series so far.
  struct Said {
    bool found = false;
    bool open = false;         // what it found is not over
    bool drifts = false;       // ... and is a rise
    bool raised = false;       // ... that was told as an error
    int64_t onset = 0;         // of what is open
    uint32_t attempt = 0;      // in which that began
    std::set<std::string> of;  // words of the rule's own: what it need not say again
    bool any() const {
      return found || open || drifts || raised || onset != 0 || attempt != 0 || !of.empty();
    }
    void Persist(Archive& a) { a(found, open, drifts, raised, onset, attempt, of); }
  };
  // The finding that an event makes, if any; none unless a rule has its own.
  virtual std::optional<FindingBuilder> Tell(const LossSeries& /*series*/,
                                             const SeriesEvent& /*event*/, Said& /*said*/) const {
    return std::nullopt;
  }
  // What a series shows that an event does not: after each of its points, and at the run's end.
  // Nothing but at the end and where series.LookIsDue: other points may come many at once.
  virtual std::optional<FindingBuilder> Look(const LossSeries& /*series*/, bool /*at_the_end*/,
                                             Said& /*said*/) const {
    return std::nullopt;
  }
  // Pass or inconclusive, of a series without a finding. nullopt: none of this rule's series.
  virtual std::optional<v1::Verdict> Rest(const LossSeries& series) const = 0;

  bool MayRise(const LossSeries& series) const { return shared_.run().MayRise(series, roles_); }
  // A note, with the reason, of what may rise.
  static void Soften(const LossSeries& series, FindingBuilder* found);

 private:
  // What was said of the series, which may be changed. It is kept if there is anything: most series
  // never have a finding.
  template <typename What>
  void OfSaid(const LossSeries& series, const What& what);
  // Reports the finding that `make` makes of it, if any.
  template <typename Make>
  void Say(const LossSeries& series, const Make& make, VerdictSink& out);
  void TellAll(const std::vector<LossRun::Told>& told,
               const std::vector<const LossSeries*>& touched, VerdictSink& out);

  const SeriesRoles roles_;  // what the user said
  SharedLossRun shared_;
  uint64_t heard_late_ = 0;  // LossRun::HearLate; between calls all was heard
  std::map<LossRun::Key, Said> said_;
  // By LossSeries::number; nullptr: not looked for yet; &nothing_: nothing is kept. Found again.
  std::vector<Said*> by_number_;
  Said nothing_;
};

// Parts that findings on losses have in common.

// Warnings a point of a healthy series, at most, at 95 % confidence (docs/measurements/losses.md).
inline constexpr double kLossAlarms = 1.2e-6;

// How far above a level, as a person reads it: "12.3 %"; of values around 0, where no percentage
// means anything, "0.31 (9.4 times its scale)".
std::string HowFar(double part, double level, double scale, bool linear);
// The same as a number, with its unit: percent or scales.
struct Height {
  double value = 0;
  const char* unit = "%";
};
Height HeightOf(double part, double level, double scale, bool linear);
// A third of the level, in that unit.
double ThirdOf(double level, double scale, bool linear);
// It rises step by step while the training loss falls.
bool Overfits(const LossSeries& series, const Excursion& excursion);

// A training loss that stays where it began, at a rate above 0: health/not-learning's.
bool LooksUnlearnt(const LossSeries& series);

// Why the model may have learnt before this run, and stands where it had come to; nullopt: nothing
// shows it. `level`: of the loss at its beginning.
std::optional<std::string> MayHaveConverged(const LossSeries& series, double level);

// The window, the level and how far above it the peak lies, as witness.
void DescribeExcursion(const LossSeries& series, const Excursion& excursion, FindingBuilder* found);
// "the rate restarted in step 80, from 0.0001 to 0.06": what led to it.
std::string RestartWords(const Excursion& excursion);
// " It begins in step 80, the first of a resume.", and what to compare; empty: it does not. Sets
// the finding's fix.
std::string BlameResume(const LossSeries& series, int64_t onset, FindingBuilder* found);
// Layer, op, steps and rank; details `series`, `step` and `kind`; what was assumed.
void PlaceOnset(const LossSeries& series, int64_t onset, int64_t last, const std::string& kind,
                FindingBuilder* found);
// "under 100 points", else nullopt.
std::optional<v1::Verdict> FewPoints(const LossSeries& series, uint64_t fewest);

}  // namespace plumbline::rules
