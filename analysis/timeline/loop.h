// Converts the spans of a trainer's own loop to columns, so that the reduction and the rules for
// traces apply to them.
//
// Time of the loop's thread outside of waiting spans (data, checkpoint, compilation, garbage
// collection) and of collectives counts as work, because no record states what it was. So in such a
// timeline "GPU" means "the loop's thread", gaps are its waits, and each gap has its cause.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/timeline/columns.h"

namespace plumbline::timeline {

// Layers of the site "timeline" for timelines of a loop. The first is for a run without a GPU. The
// second is for a run whose GPUs may continue to work while the loop waits (it is not known whether
// they are idle then).
inline constexpr std::string_view kLoopLayer = "loop";
inline constexpr std::string_view kLoopOfGpuLayer = "loop of a GPU";

struct LoopSpan {
  int64_t start = 0, end = 0;  // ns, monotonic
  v1::Span::Kind kind = v1::Span::KIND_UNSPECIFIED;
  std::string name;
};

// Lasts from the end of the previous step to the end of this step.
struct LoopStep {
  int64_t number = 0;
  int64_t start = 0, end = 0;
};

// Returns true if a span of this kind and name is used here. Others (forward, backward, ...) are
// work.
bool ReportsLoop(v1::Span::Kind kind, std::string_view name);

// Returns the columns of these steps. Spans may be in any order, but only of the loop's thread.
// Data loading within an evaluation or a checkpoint counts as part of the evaluation or checkpoint.
Columns ColumnsOfLoop(const std::vector<LoopStep>& steps, const std::vector<LoopSpan>& spans);

}  // namespace plumbline::timeline
