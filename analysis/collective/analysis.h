// The analysis of one call for the collective rules, computed once per step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "analysis/collective/bound.h"
#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/replay.h"
#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::analysis {

struct ReductionAnalysis {
  const JoinedReduction* joined = nullptr;  // valid during the step
  std::string blocked;                      // "short-id: sentence" if the call cannot be judged
  ReductionCase c;
  ReductionReplay replay;
  bool replayed = false;  // if false, `replay` has only the judged columns
  SumBound bound;         // tests whether the results can be sums of the inputs

  std::vector<uint32_t> ranks() const;  // ranks of the verdict; empty means all ranks of the step

  // Stores only the members that WithoutValues keeps, without joined and bound.
  void Persist(Archive& a) {
    ReductionFrame& frame = c;
    a(blocked, frame, replay, replayed);
  }
};

// Returns a copy that can be kept over steps. It has no values: no joined, inputs, output, offsets,
// shapes.
std::shared_ptr<const ReductionAnalysis> WithoutValues(const ReductionAnalysis& a);

// Limit of replayed calls of one site and step, in the order of (group, sequence). A 17th of 128
// groups would give no new information.
inline constexpr int kMostReplays = 16;

// Returns the calls of the step for which some rank sent a sample, in JoinReductions' order.
std::vector<std::shared_ptr<const ReductionAnalysis>> AnalyseReductions(const SiteStep& step);

}  // namespace plumbline::analysis
