// The times of the trainer's loop. The drain thread gathers them from spans and step ends, and
// reduces them to one timeline per block of steps (analysis/timeline/loop.h). Blocks end at the
// same step numbers on every rank, so that ranks can be compared: every 16 steps up to the 64th,
// then every 64. If a run has no spans, it has no timelines.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/sites/slots.h"
#include "analysis/timeline/timeline.h"

namespace plumbline::agent {

class LoopTimes {
 public:
  static constexpr size_t kMostSpans = 1u << 15;  // of a block
  static constexpr size_t kFewestSteps = 5;       // of the last block

  // Adds a span. Returns false if there were too many; then the block is lost.
  bool Span(const SpanBody& span, const std::string& name);
  // Ends a step. `at_ns` 0: the time of the end is not known. Returns true if a block ends with
  // this step; Take returns it.
  bool StepEnded(int64_t step, uint32_t thread, uint64_t at_ns);
  // Called at the run's end. Returns true if the remaining steps are enough for a timeline.
  bool any() const { return reported_ && !overflowed_ && steps_.size() >= kFewestSteps; }
  // Returns the reduced block and begins the next one.
  v1::Timeline Take();

 private:
  static int64_t BlockOf(int64_t step);
  void Begin();

  bool reported_ = false;    // a span with a meaning came, in this run
  bool overflowed_ = false;  // of this block
  uint32_t thread_ = 0;      // of the loop
  int64_t last_step_ = -1;
  int64_t last_end_ = 0;  // of a step; 0: not known
  std::vector<timeline::LoopStep> steps_;
  std::vector<std::pair<uint32_t, timeline::LoopSpan>> spans_;  // with their threads
};

}  // namespace plumbline::agent
