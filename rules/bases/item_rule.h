// The base of rules that judge each rank's item on its own, and report once per site and step.
#pragma once

#include <utility>

#include "analysis/frame/frame.h"
#include "rules/rule.h"

namespace plumbline::rules {

class ItemRule : public Rule {
 public:
  explicit ItemRule(ItemJudge judge) : judge_(std::move(judge)) {}

  bool judges_late() const override { return true; }
  void Judge(const SiteStep& step, VerdictSink& out) override { JudgeItems(step, judge_, out); }
  // Each step is judged independently: judge_ has no state.
  void Persist(Archive& /*archive*/) override {}

 private:
  const ItemJudge judge_;
};

}  // namespace plumbline::rules
