// Everything the collective rules know of one call, worked out once a step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rules/lib/reduction_case.h"
#include "rules/lib/reduction_replay.h"
#include "rules/rule.h"

namespace plumbline::rules {

struct ReductionAnalysis {
  const JoinedReduction* joined = nullptr;
  std::string blocked;  // "short-id: sentence": the call cannot be judged
  ReductionCase c;
  ReductionReplay replay;

  std::vector<uint32_t> ranks() const;  // that the verdict speaks of; empty: the step's
};

// Calls of the step that came with a sample from some rank, in JoinReductions' order.
std::vector<std::shared_ptr<const ReductionAnalysis>> AnalyseReductions(const SiteStep& step);

}  // namespace plumbline::rules
