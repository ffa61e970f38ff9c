// The points of runs that grow, as batches of what was not told yet.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "audit/readers/scalars/batches.h"

namespace plumbline::audit {

// One reader of points that are kept: engine and server each have their own. In the order of the
// files within a series, by step over all. Work is linear in what is new and in the number of
// series. Not thread-safe.
class PointCursor {
 public:
  explicit PointCursor(uint64_t stream_id) : stream_id_(stream_id) {}

  // All points that there are now were told another way.
  void SkipAll(const PointRuns& runs);
  // Those of the run up to this attempt and step were.
  void SkipThrough(const std::string& run, uint32_t attempt, int64_t step);

  // Other points took the places of those that were told: of each run they are skipped up to where
  // it was told.
  void Forget();

  // A batch of what is new up to `through`, of the newest attempt; all of earlier ones. Says that
  // the steps up to there are whole. False: there is nothing.
  bool Next(RunPoints* run, int64_t through, v1::Batch* batch);
  // Nothing more comes of the run. False: nothing was ever told of it.
  bool Goodbye(const RunPoints& run, v1::Batch* batch);
  // Since it was asked last: points came for steps that had been told as whole.
  bool TakeLate() { return std::exchange(late_, false); }

  static constexpr size_t kValues = 1 << 16;  // of a batch, about

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
    bool finished = false;  // of the attempt: it was said
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

  // The parts that are new of the attempt, up to `limit`.
  void Gather(RunPoints* run, State* state, int64_t limit);
  int64_t Cut(int64_t limit) const;
  void Fill(RunPoints* run, State* state, int64_t cut, v1::Batch* batch);
  void AddRows(const std::vector<Part*>& columns, v1::Batch* batch);
  uint64_t SetOf(const std::vector<Part*>& columns, v1::Batch* batch);
  void Begin(const RunPoints& run, uint32_t attempt, v1::Batch* batch);

  const uint64_t stream_id_;
  uint64_t sequence_ = 0;
  std::map<std::string, State> states_;   // by run
  std::map<std::string, uint64_t> sets_;  // by the names of their series
  std::vector<Part> parts_;
  bool late_ = false;
};

}  // namespace plumbline::audit
