// Reads the stages of the trainer's loop that were marked by one store each (plumbline/marks.h).
// Used by the drain thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "plumbline/marks.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::agent {

// A stage from one mark to the next, monotonic time.
struct MarkedStage {
  v1::Span::Kind kind = v1::Span::KIND_UNSPECIFIED;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
};

// Returns the stage that a mark begins; unspecified: none.
v1::Span::Kind StageOf(uint64_t mark);
const char* StageName(v1::Span::Kind kind);  // of a stage that has a mark
inline uint64_t TimeOf(uint64_t mark) { return mark >> 4; }

class LoopMarks {
 public:
  static constexpr size_t kMostWaiting = 1u << 15;  // of a step

  // Reads the marks that the loop's thread has written.
  void Read(plumbline_marks_t* marks);
  // Returns the next stage that was read and ended by `until_ns`. If time goes backwards, there is
  // no stage.
  std::optional<MarkedStage> Next(uint64_t until_ns);
  // Returns the number of marks lost since the last call: in the trainer's ring, or here because no
  // step ended for too long.
  uint64_t TakeLost();

 private:
  std::deque<uint64_t> waiting_;
  size_t at_ = 0;               // in the trainer's ring
  uint64_t open_ = 0;           // the mark of the stage that has not ended; 0: none is known
  uint64_t reported_lost_ = 0;  // of the trainer's count, already reported
  uint64_t lost_ = 0;
  bool gap_ = false;
};

}  // namespace plumbline::agent
