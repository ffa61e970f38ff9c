#include "agent/core/run/loop_marks.h"

#include <iterator>
#include <utility>

namespace plumbline::agent {
namespace {

// By the stage's number.
constexpr struct {
  v1::Span::Kind kind;
  const char* name;  // name of the kind, as in plumbline_span_begin
} kStages[] = {
    {v1::Span::KIND_UNSPECIFIED, ""},      {v1::Span::KIND_FORWARD, "forward"},
    {v1::Span::KIND_BACKWARD, "backward"}, {v1::Span::KIND_OPTIMIZER, "optimizer"},
    {v1::Span::KIND_DATA, "data"},         {v1::Span::KIND_COLLECTIVE, "collective"},
};

}  // namespace

v1::Span::Kind StageOf(uint64_t mark) {
  const uint64_t stage = mark & (PLUMBLINE_MARK_GAP - 1);
  return stage < std::size(kStages) ? kStages[stage].kind : v1::Span::KIND_UNSPECIFIED;
}

const char* StageName(v1::Span::Kind kind) {
  for (const auto& stage : kStages) {
    if (stage.kind == kind) return stage.name;
  }
  return "";
}

void LoopMarks::Read(plumbline_marks_t* marks) {
  for (;;) {
    const uint64_t mark = __atomic_load_n(&marks->mark[at_], __ATOMIC_ACQUIRE);
    if (mark == 0) break;
    __atomic_store_n(&marks->mark[at_], 0, __ATOMIC_RELEASE);
    at_ = (at_ + 1) % PLUMBLINE_MARKS;
    if (waiting_.size() == kMostWaiting) {
      ++lost_;
      gap_ = true;
      continue;
    }
    waiting_.push_back(std::exchange(gap_, false) ? mark | PLUMBLINE_MARK_GAP : mark);
  }
  const uint64_t lost = __atomic_load_n(&marks->lost, __ATOMIC_RELAXED);
  lost_ += lost - std::exchange(reported_lost_, lost);
}

std::optional<MarkedStage> LoopMarks::Next(uint64_t until_ns) {
  while (!waiting_.empty() && TimeOf(waiting_.front()) <= until_ns) {
    const uint64_t mark = waiting_.front(), before = std::exchange(open_, mark);
    waiting_.pop_front();
    const v1::Span::Kind kind = StageOf(before);
    const bool whole = (mark & PLUMBLINE_MARK_GAP) == 0 && TimeOf(mark) >= TimeOf(before);
    if (whole && kind != v1::Span::KIND_UNSPECIFIED) {
      return MarkedStage{kind, TimeOf(before), TimeOf(mark)};
    }
  }
  return std::nullopt;
}

uint64_t LoopMarks::TakeLost() { return std::exchange(lost_, 0); }

}  // namespace plumbline::agent
