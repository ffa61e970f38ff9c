// The base of rules that judge each recorded call of a router on its own.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "analysis/routing/routing.h"
#include "rules/rule.h"

namespace plumbline::rules {

class RoutingRule : public Rule {
 public:
  using Analyses = std::vector<std::shared_ptr<const RoutingAnalysis>>;

  bool judges_late() const override { return true; }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    const Analyses analyses = AnalyseRouting(step);
    for (size_t i = 0; i < analyses.size(); ++i) {
      if (analyses[i] == nullptr) continue;
      v1::Verdict verdict = JudgeCall(step, analyses, i);
      *verdict.mutable_details() = analyses[i]->Details();
      for (const uint32_t rank : analyses[i]->ranks) verdict.mutable_site()->add_ranks(rank);
      out.Add(std::move(verdict));
    }
  }

  // Each step is judged independently.
  void Persist(Archive& /*archive*/) override {}

 private:
  // Returns the verdict on analyses[i], which is not nullptr, without details and ranks.
  virtual v1::Verdict JudgeCall(const SiteStep& step, const Analyses& analyses, size_t i) const = 0;
};

}  // namespace plumbline::rules
