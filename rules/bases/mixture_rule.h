// The frame of the rules on a mixture's health: a window of steps a layer, a finding when the
// window first shows the fault, one verdict at the end where it never did.
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
    .reason = "a mixture evens out over tens of steps; what lasts for 100 does not mend itself",
    .low = 20,
    .high = 10000};

class MixtureRule : public Rule {
 public:
  explicit MixtureRule(const Options& options)
      : window_steps_(static_cast<size_t>(options.Integer("steps"))) {}

  void Judge(const SiteStep& step, VerdictSink& out) override;
  void JudgeRun(const RunSummary& run, VerdictSink& out) override;
  // All that such a rule remembers: what derives from it keeps options only.
  void Persist(Archive& archive) final;

 protected:
  // The finding that a full window makes, if any; `fired`: cause ids already told, not to be told
  // again. Level, title, ... are the rule's; site, details and sample size are filled here.
  virtual std::optional<FindingBuilder> Test(const MixtureWindow& window,
                                             const std::set<std::string>& fired) const = 0;
  // The finding that a window makes which is not enough for Test, but is for a total collapse
  // (MixtureWindow::enough_of_all).
  virtual std::optional<FindingBuilder> TestOfAll(const MixtureWindow& /*window*/,
                                                  const std::set<std::string>& /*fired*/) const {
    return std::nullopt;
  }
  // Pass or inconclusive, of the last window (full) of a layer that never had a finding.
  virtual v1::Verdict Rest(const MixtureWindow& window) const = 0;
  // What the window shows, for verdicts of any kind.
  virtual void Describe(const MixtureWindow& window, google::protobuf::Struct& details) const = 0;
  // Steps that say nothing to this rule are counted apart.
  virtual bool Usable(const MixtureStep& /*step*/) const { return true; }
  // Why the steps that were not usable are not.
  virtual const char* Unusable() const { return "no step could be read"; }

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
