// Returns the points of growing runs as batches of points that were not returned before.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "audit/readers/scalars/batches.h"

namespace plumbline::audit {

// One reader of kept points: the engine and the server each have their own. Points of a series come
// in the order of the files, points of all series by step. Work is linear in the new points and the
// number of series. Not thread-safe.
class PointCursor {
 public:
  explicit PointCursor(uint64_t stream_id) : stream_id_(stream_id) {}

  // Skips all current points: they were passed on in another way.
  void SkipAll(const PointRuns& runs);
  // Skips the run's points up to this attempt and step.
  void SkipThrough(const std::string& run, uint32_t attempt, int64_t step);

  // Call if the points were replaced. Skips the new points of each run up to the step that was
  // already returned.
  void Forget();

  // Returns a batch of new points: of the newest attempt up to `through`, of earlier attempts all.
  // The batch states that the steps up to there are complete. Returns false if there are none.
  bool Next(RunPoints* run, int64_t through, v1::Batch* batch);
  // Returns a batch that ends the run. Returns false if no batch of the run was returned.
  bool Goodbye(const RunPoints& run, v1::Batch* batch);
  // Returns true once after points came for steps that had been reported as complete.
  bool TakeLate() { return std::exchange(late_, false); }

  static constexpr size_t kValues = 1 << 16;  // values in a batch, about

 private:
  struct Place {
    uint32_t attempt = 0;
    size_t index = 0;  // of the next point in the attempt's chunk
  };
  struct State {
    uint32_t attempt = 0;
    int64_t through = INT64_MIN;
    uint32_t skip_attempt = 0;
    int64_t skip_step = INT64_MIN;
    bool finished = false;  // the attempt's end was reported
    std::unordered_map<const PointSeries*, Place> places;
  };
  // New points of one series.
  struct Part {
    uint32_t source;
    PointSeries* series;
    SeriesChunk* chunk;
    Place* place;
    size_t end;
  };

  // Collects the new parts of the attempt, up to `limit`.
  void Gather(RunPoints* run, State* state, int64_t limit);
  int64_t Cut(int64_t limit) const;
  void Fill(RunPoints* run, State* state, int64_t cut, v1::Batch* batch);
  void AddRows(const std::vector<Part*>& columns, v1::Batch* batch);
  uint64_t SetOf(const std::vector<Part*>& columns, v1::Batch* batch);
  void Begin(const RunPoints& run, uint32_t attempt, v1::Batch* batch);

  const uint64_t stream_id_;
  uint64_t sequence_ = 0;
  std::map<std::string, State> states_;   // by run
  std::map<std::string, uint64_t> sets_;  // by the names of its series
  std::vector<Part> parts_;
  bool late_ = false;
};

}  // namespace plumbline::audit
