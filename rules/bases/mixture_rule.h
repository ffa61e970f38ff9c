// The base of the rules on a mixture's health: a window of steps per layer, a finding when the
// window first shows the fault, and one verdict at the end if it never did.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "analysis/experts/experts.h"
#include "base/archive.h"
#include "rules/rule.h"

namespace plumbline::rules {

inline constexpr OptionInfo kMixtureStepsOption = {
    .name = "steps",
    .type = OptionInfo::Type::kInteger,
    .unit = "steps",
    .default_value = "100",
    .reason = "load evens out over tens of steps; an imbalance that lasts 100 steps stays",
    .low = 20,
    .high = 10000};

class MixtureRule : public Rule {
 public:
  explicit MixtureRule(const Options& options)
      : window_steps_(static_cast<size_t>(options.Integer("steps"))) {}

  void Judge(const SiteStep& step, VerdictSink& out) override;
  void JudgeRun(const RunSummary& run, VerdictSink& out) override;
  // Stores all state of such a rule; derived classes only have options.
  void Persist(Archive& archive) final;

 protected:
  // Returns the finding for a full window, if there is one. `fired` has the cause ids that were
  // already reported. The rule sets level, title, ...; this class sets site, details and sample
  // size.
  virtual std::optional<FindingBuilder> Test(const MixtureWindow& window,
                                             const std::set<std::string>& fired) const = 0;
  // Returns the finding for a window that is not enough for Test, but enough for a total collapse
  // (MixtureWindow::enough_of_all).
  virtual std::optional<FindingBuilder> TestOfAll(const MixtureWindow& /*window*/,
                                                  const std::set<std::string>& /*fired*/) const {
    return std::nullopt;
  }
  // Returns a pass or inconclusive verdict for the last (full) window of a layer without a finding.
  virtual v1::Verdict Rest(const MixtureWindow& window) const = 0;
  // Describes the window for verdicts of any kind.
  virtual void Describe(const MixtureWindow& window, google::protobuf::Struct& details) const = 0;
  // Returns false for steps that this rule cannot use; they are counted separately.
  virtual bool Usable(const MixtureStep& /*step*/) const { return true; }
  // Returns why steps were not usable.
  virtual const char* Unusable() const { return "no step could be evaluated"; }

 private:
  struct Layer {
    explicit Layer(size_t steps) : window(steps) {}
    MixtureWindow window;
    MixtureGaps gaps;
    uint64_t unusable = 0;
    int64_t step_first = 0;
    int64_t step_last = 0;
    std::set<uint32_t> ranks;
    std::set<std::string> fired;
    void Persist(Archive& a) { a(window, gaps, unusable, step_first, step_last, ranks, fired); }
  };

  void Take(const SiteStep& step, const JoinedMixture& joined, Layer& layer) const;
  v1::Verdict Found(const MixtureKey& key, const Layer& layer, FindingBuilder found) const;
  v1::Verdict Last(const MixtureKey& key, const Layer& layer) const;
  void Complete(const MixtureKey& key, const Layer& layer, v1::Verdict& verdict) const;

  size_t window_steps_;
  std::map<MixtureKey, Layer> layers_;
};

}  // namespace plumbline::rules
