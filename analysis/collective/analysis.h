// Everything the collective rules know of one call, worked out once a step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "analysis/collective/bound.h"
#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/replay.h"
#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::rules {

struct ReductionAnalysis {
  const JoinedReduction* joined = nullptr;  // valid during the step
  std::string blocked;                      // "short-id: sentence": the call cannot be judged
  ReductionCase c;
  ReductionReplay replay;
  bool replayed = false;  // else replay has the judged columns alone
  SumBound bound;         // can the results be sums of the inputs at all?

  std::vector<uint32_t> ranks() const;  // that the verdict speaks of; empty: the step's

  // What WithoutValues keeps, without joined and bound: only that is remembered beyond its step.
  void Persist(Archive& a) {
    ReductionFrame& frame = c;
    a(blocked, frame, replay, replayed);
  }
};

// The same without its values, to be kept over steps: no joined, inputs, output, offsets, shapes.
std::shared_ptr<const ReductionAnalysis> WithoutValues(const ReductionAnalysis& a);

// Of so many calls of one site and step the first are replayed, by (group, sequence): what the 17th
// of 128 groups does, the others do.
inline constexpr int kMostReplays = 16;

// Calls of the step that came with a sample from some rank, in JoinReductions' order.
std::vector<std::shared_ptr<const ReductionAnalysis>> AnalyseReductions(const SiteStep& step);

}  // namespace plumbline::rules
