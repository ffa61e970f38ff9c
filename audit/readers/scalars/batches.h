// Returns the points of runs as batches, in the order (run, attempt, step), as agents would send
// them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "audit/readers/input/reader.h"
#include "audit/readers/scalars/run_points.h"

namespace plumbline::audit {

// Series with equal steps become columns of one set. Joins ranks by step. Frees the points after
// each attempt, unless `points` is kKept. Not thread-safe.
class PointBatches {
 public:
  enum class Points { kFreed, kKept };

  // `stream_id` must be unique in the audit. `runs` must outlive the object, and must not change
  // meanwhile.
  PointBatches(PointRuns* runs, uint64_t stream_id, Points points = Points::kFreed);

  // Returns false if nothing is left.
  bool Next(v1::Batch* batch);
  const Position& position() const { return position_; }

  static constexpr size_t kValues = 1 << 16;  // approximate size of a batch

 private:
  // Series of one rank that have equal steps in the attempt.
  struct Group {
    uint32_t source = 0;  // index in the batch's sources
    uint64_t set = 0;
    std::vector<SeriesChunk*> columns;
    size_t at = 0;                   // next row
    v1::SeriesRows* rows = nullptr;  // rows in the current batch
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
  std::deque<SeriesChunk> ordered_;  // sorted copies of kept chunks that are not ascending
  uint64_t sequence_ = 0;
  std::map<std::string, uint64_t> sets_;  // names of the series -> number of the set
  std::map<std::string, RunPoints>::iterator run_;
  uint32_t attempt_ = 0;
  uint32_t last_attempt_ = 0;  // last attempt of the run
  bool open_ = false;          // true within an attempt
  std::vector<PointLane*> lanes_;
  std::vector<Group> groups_;
  std::vector<v1::SeriesSet> undeclared_;
  std::vector<std::pair<int64_t, size_t>> heap_;  // heap of (next step, group), smallest first
  std::vector<int64_t> cuts_;                     // steps after which a batch may end
  size_t cut_ = 0;
  Position position_;
};

// Returns the newest attempt that has points.
uint32_t NewestAttempt(const RunPoints& run);
v1::Source PointSource(const RunPoints& run, uint32_t rank, uint32_t attempt);
// Adds the progress of a rank whose steps up to `through` have been sent. `last` marks the end of
// the run.
void DescribeProgress(const PointLane& lane, uint32_t source, int64_t through, bool last,
                      v1::Batch* batch);

}  // namespace plumbline::audit
