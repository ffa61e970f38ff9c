// Stages of the trainer's loop that were told by a word each (plumbline/marks.h), as the drain
// thread reads them: it alone calls this.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "plumbline/marks.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::agent {

// From one mark to the next, monotonic.
struct MarkedStage {
  v1::Span::Kind kind = v1::Span::KIND_UNSPECIFIED;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
};

// The stage that a mark begins; unspecified: none.
v1::Span::Kind StageOf(uint64_t mark);
const char* StageName(v1::Span::Kind kind);  // of one that has a mark
inline uint64_t TimeOf(uint64_t mark) { return mark >> 4; }

class LoopMarks {
 public:
  static constexpr size_t kMostWaiting = 1u << 15;  // of a step

  // Takes what the loop's thread has written.
  void Read(plumbline_marks_t* marks);
  // The next stage of those that were read and ended by `until_ns`. A time that goes back is none.
  std::optional<MarkedStage> Next(uint64_t until_ns);
  // Marks that were lost since the last call: there, or here because no step ended for so long.
  uint64_t TakeLost();

 private:
  std::deque<uint64_t> waiting_;
  size_t at_ = 0;           // in the trainer's ring
  uint64_t open_ = 0;       // the mark whose stage has not ended; 0: none is known
  uint64_t told_lost_ = 0;  // of the trainer's count
  uint64_t lost_ = 0;
  bool gap_ = false;
};

}  // namespace plumbline::agent
