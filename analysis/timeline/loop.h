// The spans of a trainer's own loop as columns, so that the one reduction and the rules that judge
// traces look at them too.
//
// What the loop's thread does outside of spans that wait (data, checkpoint, compilation, garbage
// collection) and of collectives counts as work: nobody else says what it was. So in a timeline
// made of it "GPU" reads "the loop's thread", gaps are its waits, and each of them has its cause.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/timeline/columns.h"

namespace plumbline::timeline {

// Layers of the site "timeline" under which such timelines travel: of a run without a GPU, and of
// one whose GPUs work on while the loop waits (nobody knows whether they idle then).
inline constexpr std::string_view kLoopLayer = "loop";
inline constexpr std::string_view kLoopOfGpuLayer = "loop of a GPU";

struct LoopSpan {
  int64_t start = 0, end = 0;  // ns, monotonic
  v1::Span::Kind kind = v1::Span::KIND_UNSPECIFIED;
  std::string name;
};

// From the end of the step before to its own end.
struct LoopStep {
  int64_t number = 0;
  int64_t start = 0, end = 0;
};

// Does a span of this kind and name say anything here? Others (forward, backward, ...) are work.
bool TellsOfLoop(v1::Span::Kind kind, std::string_view name);

// The columns of these steps; spans in any order, of the loop's thread alone. Data that are loaded
// within an evaluation or a checkpoint are part of that.
Columns ColumnsOfLoop(const std::vector<LoopStep>& steps, const std::vector<LoopSpan>& spans);

}  // namespace plumbline::timeline
