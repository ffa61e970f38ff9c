#include "agent/core/run/loop_times.h"

#include <algorithm>

namespace plumbline::agent {
namespace {

// Time of a clock that counts from the host's start.
int64_t LoopClock(uint64_t ns) {
  return static_cast<int64_t>(std::min<uint64_t>(ns, timeline::kMostTime));
}

}  // namespace

int64_t LoopTimes::BlockOf(int64_t step) {
  const int64_t count = step + 1;
  return count < 64 ? count / 16 : 4 + count / 64;
}

bool LoopTimes::Span(const SpanBody& span, const std::string& name) {
  const auto kind = static_cast<v1::Span::Kind>(span.kind);
  if (!timeline::ReportsLoop(kind, name)) return true;
  reported_ = true;
  if (spans_.size() >= kMostSpans) {
    overflowed_ = true;
    return false;
  }
  const int64_t start = LoopClock(span.start_monotonic_ns);
  const int64_t end = LoopClock(span.start_monotonic_ns + span.duration_ns);
  spans_.push_back({span.thread, {start, end, kind, name}});
  return true;
}

bool LoopTimes::StepEnded(int64_t step, uint32_t thread, uint64_t at_ns) {
  const bool block_ends = last_step_ >= 0 && BlockOf(step) > BlockOf(last_step_);
  last_step_ = step;
  // Another thread ends steps now, or an end was missed, so the gathered spans fit no block.
  if (thread != thread_ || at_ns == 0) Begin();
  thread_ = thread;
  const int64_t end = LoopClock(at_ns);
  if (last_end_ > 0 && end > last_end_) steps_.push_back({step, last_end_, end});
  last_end_ = end;
  if (!block_ends) return false;
  const bool whole = any();
  if (!whole) Begin();
  return whole;
}

void LoopTimes::Begin() {
  steps_.clear();
  spans_.clear();
  overflowed_ = false;
}

v1::Timeline LoopTimes::Take() {
  std::vector<timeline::LoopSpan> own;
  for (auto& [thread, span] : spans_) {
    if (thread == thread_) own.push_back(std::move(span));
  }
  timeline::Columns columns = timeline::ColumnsOfLoop(steps_, own);
  Begin();
  return timeline::Reduce(&columns);
}

}  // namespace plumbline::agent
