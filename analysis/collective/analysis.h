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
  bool replayed = false;  // if false, replay has the judged columns only
  SumBound bound;         // tests whether the results can be sums of the inputs

  std::vector<uint32_t> ranks()
      const;  // ranks that the verdict is about; empty means those of the step

  // Stores what WithoutValues keeps, without joined and bound: only that is kept after its step.
  void Persist(Archive& a) {
    ReductionFrame& frame = c;
    a(blocked, frame, replay, replayed);
  }
};

// Returns a copy without the values, to be kept over steps: no joined, inputs, output, offsets,
// shapes.
std::shared_ptr<const ReductionAnalysis> WithoutValues(const ReductionAnalysis& a);

// Of the calls of one site and step only this number is replayed, in the order of (group,
// sequence). The 17th of 128 groups behaves as the others.
inline constexpr int kMostReplays = 16;

// Returns the calls of the step for which some rank sent a sample, in JoinReductions' order.
std::vector<std::shared_ptr<const ReductionAnalysis>> AnalyseReductions(const SiteStep& step);

}  // namespace plumbline::analysis
