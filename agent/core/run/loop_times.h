// What the trainer's loop spends its time with, gathered by the drain thread from spans and step
// ends, and reduced to one timeline a block of steps (analysis/timeline/loop.h). Blocks end at the
// same step numbers on every rank, so that ranks can be compared: each 16 steps up to the 64th,
// then each 64. A run that never begins a span has none.
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

  // False: there were too many, and the block is lost.
  bool Span(const SpanBody& span, const std::string& name);
  // `at_ns` 0: nobody knows when it ended. True: with this step a block ends, which `Take` gives.
  bool StepEnded(int64_t step, uint32_t thread, uint64_t at_ns);
  // At the run's end: what is left is worth a timeline.
  bool any() const { return told_ && !overflowed_ && steps_.size() >= kFewestSteps; }
  // The block so far, reduced; the next begins.
  v1::Timeline Take();

 private:
  static int64_t BlockOf(int64_t step);
  void Begin();

  bool told_ = false;        // a span that says something, in this run
  bool overflowed_ = false;  // of this block
  uint32_t thread_ = 0;      // the loop's
  int64_t last_step_ = -1;
  int64_t last_end_ = 0;  // of a step; 0: not known
  std::vector<timeline::LoopStep> steps_;
  std::vector<std::pair<uint32_t, timeline::LoopSpan>> spans_;  // with their threads
};

}  // namespace plumbline::agent
