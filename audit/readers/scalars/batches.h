// The points of runs as batches, in the order (run, attempt, step), as agents would have sent them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "audit/readers/input/reader.h"
#include "audit/readers/scalars/run_points.h"

namespace plumbline::audit {

// Series that have the same steps are columns of one set; ranks are joined by step. Points that
// were given out are freed attempt by attempt, unless they are kept. Not thread-safe.
class PointBatches {
 public:
  enum class Points { kFreed, kKept };

  // `stream_id`: not that of any other batches of the audit. `runs` outlives it, and does not
  // change while it is given out.
  PointBatches(PointRuns* runs, uint64_t stream_id, Points points = Points::kFreed);

  // False: all has been given out.
  bool Next(v1::Batch* batch);
  const Position& position() const { return position_; }

  static constexpr size_t kValues = 1 << 16;  // of a batch, about

 private:
  // Series of one rank with the same steps during the attempt.
  struct Group {
    uint32_t source = 0;  // index
    uint64_t set = 0;
    std::vector<SeriesChunk*> columns;
    size_t at = 0;                   // row
    v1::SeriesRows* rows = nullptr;  // of the batch that is made
    const StepList& steps() const { return columns[0]->steps; }
  };

  bool BeginAttempt();
  void NextRun();
  void GroupSeries(PointLane* lane, uint32_t source);
  void CutSteps();
  void EndAttempt();
  size_t Append(Group* group, int64_t through, v1::Batch* batch);
  void Close(int64_t through, v1::Batch* batch);

  PointRuns* runs_;
  const uint64_t stream_id_;
  const Points points_;
  std::deque<SeriesChunk> ordered_;  // of kept points that are not, of the attempt
  uint64_t sequence_ = 0;
  std::map<std::string, uint64_t> sets_;  // by the names of their series
  std::map<std::string, RunPoints>::iterator run_;
  uint32_t attempt_ = 0;
  uint32_t last_attempt_ = 0;  // of the run
  bool open_ = false;          // an attempt is being given out
  std::vector<PointLane*> lanes_;
  std::vector<Group> groups_;
  std::vector<v1::SeriesSet> undeclared_;
  std::vector<std::pair<int64_t, size_t>> heap_;  // (next step, group), least first
  std::vector<int64_t> cuts_;                     // steps behind which a batch may end
  size_t cut_ = 0;
  Position position_;
};

// The newest attempt of which there are points.
uint32_t NewestAttempt(const RunPoints& run);
v1::Source PointSource(const RunPoints& run, uint32_t rank, uint32_t attempt);
// All of the rank's steps up to `through` has been given out; `last`: and of the run.
void DescribeProgress(const PointLane& lane, uint32_t source, int64_t through, bool last,
                      v1::Batch* batch);

}  // namespace plumbline::audit
