// The base of the rules on losses: the run that they share, the findings from its events, and a
// final verdict on each series without a finding.
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

class LossRule : public ScalarRule {
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
  // Derived classes keep no other state. Between calls heard_late_ is up to date and nothing_ is
  // empty.
  void Persist(Archive& archive) final;

 protected:
  // The rule's reports on a series so far.
  struct Stated {
    bool found = false;
    bool open = false;         // its finding is not over
    bool drifts = false;       // ... and is a rise
    bool raised = false;       // ... that was reported as an error
    int64_t onset = 0;         // onset of the open finding
    uint32_t attempt = 0;      // attempt of that onset
    std::set<std::string> of;  // the rule's own keys: what it need not report again
    bool any() const {
      return found || open || drifts || raised || onset != 0 || attempt != 0 || !of.empty();
    }
    void Persist(Archive& a) { a(found, open, drifts, raised, onset, attempt, of); }
  };
  // Returns the finding for an event, if there is one. By default there is none.
  virtual std::optional<FindingBuilder> Emit(const LossSeries& /*series*/,
                                             const SeriesEvent& /*event*/,
                                             Stated& /*stated*/) const {
    return std::nullopt;
  }
  // Returns a finding from the series itself, not from an event. Called after each of its points
  // and at the run's end. It must only return a finding at the end or if series.LookIsDue, because
  // other points may come in batches.
  virtual std::optional<FindingBuilder> Look(const LossSeries& /*series*/, bool /*at_the_end*/,
                                             Stated& /*stated*/) const {
    return std::nullopt;
  }
  // Returns a pass or inconclusive verdict for a series without a finding. If the rule does not
  // judge the series, returns nullopt.
  virtual std::optional<v1::Verdict> Rest(const LossSeries& series) const = 0;

  bool IsPolicy() const { return shared_.run().IsPolicy(); }
  bool MayRise(const LossSeries& series) const { return shared_.run().MayRise(series, roles_); }
  // True if the same processes log the margins or accuracies of pairs.
  bool OfPairs(const LossSeries& series) const;
  // True if a training loss of the same processes falls to its end.
  bool TrainingFalls(const LossSeries& series) const { return shared_.run().AnotherFalls(series); }
  bool TrainingFellSince(const LossSeries& series, int64_t step) const {
    return shared_.run().TrainingFellSince(series, step);
  }
  // True if the evaluation has a value in most rows of the training: tables that are filled
  // forward, and progress bars, repeat the newest evaluation in each row. Rows that are counted
  // from the first one on, one by one, are epochs.
  bool MayBeCopied(const LossSeries& evaluation) const;
  // Makes the finding a note, with the reason, for a series that may rise; a warning for a part
  // that ends a hundred times above its first values, in a run without rewards.
  void Soften(const LossSeries& series, FindingBuilder* found) const;
  // Lowers a rise's level, with the reason, if another series explains it (Companions): a note if a
  // part is switched on at its onset and accounts for half of the rise; or if a part of the loss
  // falls, and a weight moves or a term accounts for half of the rise; else a warning, if a phase
  // changes at its onset, a weight moves, or an evaluation improves to the end.
  void SoftenExplained(const LossSeries& series, FindingBuilder* found) const;
  // Makes a flat loss a note if a measure of quality rises (Companions::QualityRises).
  void SoftenByQuality(const LossSeries& series, FindingBuilder* found) const;
  // Makes a jump a note if a phase changes there and the loss does not diverge, if a part is
  // switched on there, or if it is no jump and a weight moves.
  void SoftenJump(const LossSeries& series, const Excursion& excursion,
                  FindingBuilder* found) const;

 private:
  // If the learning rate jumped at the finding's onset, names it as the cause. A resume is named by
  // BlameResume.
  void BlameRate(const LossSeries& series, int64_t onset, FindingBuilder* found) const;
  // Makes the finding a note if a part is switched on at its onset and accounts for half of `rise`.
  // Returns true if it does.
  bool SoftenSwitchedOn(const LossSeries& series, int64_t onset, double rise,
                        FindingBuilder* found) const;
  // Makes the finding a note if another model begins at its onset (fold, member), and the loss is
  // not above that of the first one. Returns true if so.
  bool SoftenModel(const LossSeries& series, int64_t onset, FindingBuilder* found) const;
  // Makes an error a warning if one part of the loss accounts for its jump at `onset` and does not
  // rise afterwards, while another part falls: that part's weight, which is not logged, may have
  // changed.
  void SoftenPart(const LossSeries& series, int64_t onset, FindingBuilder* found) const;
  // Calls what with the state of the series, which it may change. The state is kept only if it is
  // not empty, because most series never have a finding.
  template <typename What>
  void OfStated(const LossSeries& series, const What& what);
  // Reports the finding that `make` returns, if any.
  template <typename Make>
  void Report(const LossSeries& series, const Make& make, VerdictSink& out);
  void ReportAll(const std::vector<LossRun::Reported>& reported,
                 const std::vector<const LossSeries*>& touched, VerdictSink& out);

  const SeriesRoles roles_;  // roles that the user assigned
  SharedLossRun shared_;
  uint64_t heard_late_ = 0;  // counter of LossRun::HearLate; up to date between calls
  std::map<LossRun::Key, Stated> stated_;
  // Indexed by LossSeries::number. nullptr: not looked up yet; &nothing_: no state is kept. Not
  // stored, but recomputed.
  std::vector<Stated*> by_number_;
  Stated nothing_;
};

// Helpers that findings on losses share.

// Upper bound of the warnings per point of a healthy series, at 95 % confidence
// (docs/measurements/losses.md).
inline constexpr double kLossAlarms = 1.2e-6;

// Returns a height above a level as text: "12.3 %". If values are around 0, where a percentage has
// no meaning, "0.31 (9.4 times its scale)".
std::string HowFar(double part, double level, double scale, bool linear);
// The same as a number with its unit: percent or scales.
struct Height {
  double value = 0;
  const char* unit = "%";
};
Height HeightOf(double part, double level, double scale, bool linear);
// Returns a third of the level, in that unit.
double ThirdOf(double level, double scale, bool linear);
// Returns true if the evaluation rises step by step while the training loss falls.
bool Overfits(const LossSeries& series, const Excursion& excursion);

// Returns true if the excursion may be noise: the window that it was compared with was short and
// quiet, but neighbouring points of the series differ by more than its scale, and the peak is
// within eight standard deviations of such noise.
bool MayBeNoise(const LossSeries& series, const Excursion& excursion);
// Makes such a finding a note, with the reason. So too if the series goes up and down between two
// levels.
void SoftenNoise(const LossSeries& series, const Excursion& excursion, FindingBuilder* found);

// Returns true if a training loss stays where it began, at a rate above 0: health/not-learning
// reports it.
bool LooksUnlearnt(const LossSeries& series);

// Returns why the model may have learnt before this run and stays at that level. If nothing
// indicates it, returns nullopt. `level` is that of the loss at its beginning.
std::optional<std::string> MayHaveConverged(const LossSeries& series, double level);

// Adds the window, the level and the height of the peak as witness.
void DescribeExcursion(const LossSeries& series, const Excursion& excursion, FindingBuilder* found);
// Returns the cause: "the rate restarted in step 80, from 0.0001 to 0.06".
std::string RestartWords(const Excursion& excursion);
// Returns " It begins in step 80, the first of a resume.", and what to compare, and sets the
// finding's fix. If it does not begin at a resume, returns an empty string.
std::string BlameResume(const LossSeries& series, int64_t onset, FindingBuilder* found);
// Sets layer, op, steps and rank; the details `series`, `step` and `kind`; and the assumptions.
void PlaceOnset(const LossSeries& series, int64_t onset, int64_t last, const std::string& kind,
                FindingBuilder* found);
// Returns an inconclusive verdict "under 100 points". If there are enough points, returns nullopt.
std::optional<v1::Verdict> FewPoints(const LossSeries& series, uint64_t fewest);

}  // namespace plumbline::rules
