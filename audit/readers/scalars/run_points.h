// Stores all points of a run, by rank, series and attempt.
//
// If a step repeats and is not among the newest 8 of its series, it begins a new attempt of all
// series of its rank and split, and later values belong to that attempt too. If it is among them,
// the new value replaces the old one, unless the old one is NaN or infinite. A step that was never
// seen is inserted in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "audit/readers/scalars/step_list.h"

namespace plumbline::audit {

// Limits for all runs that one reader reads together. Points beyond them are left out and counted.
struct PointLimits {
  // Number of points: 8 bytes each, or 16 if their steps are not equidistant.
  uint64_t points = 64u << 20;
  size_t names = 1u << 16;  // number of names over all ranks and runs
  size_t name_bytes = 512;
  size_t lanes = 1u << 14;  // number of ranks of all runs
  uint32_t attempts = 4096;
};

// A series during one attempt. `steps` are in the order of the file until Order is called.
struct SeriesChunk {
  uint32_t attempt = 0;
  bool ordered = true;
  int64_t newest = 0;  // newest step
  StepList steps;
  std::vector<double> values;

  void Add(int64_t step, double value) {
    if (values.size() == values.capacity()) Grow();
    steps.push_back(step);
    values.push_back(value);
  }
  void Order();  // sorts the points by step, ascending

 private:
  void Grow();
};

class PointSeries {
 public:
  explicit PointSeries(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  // Returns true if this step of the newest attempt, `attempt`, begins the next one.
  bool Repeats(uint32_t attempt, int64_t step);
  // Returns true if the number of points has grown.
  bool Add(uint32_t attempt, int64_t step, double value) {
    if (now_ != nullptr && now_->attempt == attempt && step > now_->newest) {
      now_->newest = step;
      now_->Add(step, value);
      if (watched_) seen_.insert(step);
      return true;
    }
    return AddOlder(attempt, step, value);
  }
  // Cheap test. If it returns false, a point of this step cannot begin an attempt.
  bool MayRepeat(uint32_t attempt, int64_t step) const {
    return now_ != nullptr && now_->attempt == attempt && step <= now_->newest;
  }
  // Returns the chunks, in the order of attempts.
  std::deque<SeriesChunk>& chunks() { return chunks_; }
  const std::deque<SeriesChunk>& chunks() const { return chunks_; }
  SeriesChunk* Chunk(uint32_t attempt);  // Returns nullptr if the attempt has no point.

  // Records that a caller has passed on the points up to `step` of the newest attempt. TakeAltered
  // then returns true once if a point up to there is added or replaced.
  void Reported(int64_t step) { reported_ = std::max(reported_, step); }
  bool TakeAltered() { return std::exchange(altered_, false); }
  // Returns the first place where the newest steps went back and at least two of them repeated in
  // order: (from, to).
  const std::optional<std::pair<int64_t, int64_t>>& fell_back() const { return fell_back_; }

 private:
  bool AddOlder(uint32_t attempt, int64_t step, double value);
  // Returns the index of the step if it is among the newest of the attempt; else nullopt.
  std::optional<size_t> Recent(int64_t step) const;
  void NoteAgain(size_t at);

  std::string name_;
  std::deque<SeriesChunk> chunks_;
  SeriesChunk* now_ = nullptr;    // the last chunk
  int64_t reported_ = INT64_MIN;  // step up to which points were passed on
  bool altered_ = false;          // since then, a point up to reported_ was added or replaced
  // Place and number of repeated steps.
  size_t again_first_ = 0, again_next_ = SIZE_MAX, again_size_ = 0;
  std::optional<std::pair<int64_t, int64_t>> fell_back_;
  bool watched_ = false;               // its steps are not ascending, so seen_ holds them
  absl::flat_hash_set<int64_t> seen_;  // steps of the newest attempt
};

// The state of the files of one rank and split, which are read one after the other.
struct PointPart {
  uint32_t attempt = 0;
  uint64_t attempt_points = 0;  // number of points since the attempt began
  uint64_t files = 0;
};

// One rank of a run.
struct PointLane {
  uint32_t rank = 0;
  std::map<std::string, PointPart> parts;  // prefix -> part
  std::deque<PointSeries> series;
  absl::flat_hash_map<std::string, PointSeries*> by_name;
  std::optional<int32_t> exit_status;
};

struct RunPoints {
  std::string run;
  std::map<uint32_t, PointLane> lanes;  // rank -> lane
  // Times at which the files with the first points of attempts 1, 2, ... began; NaN if unknown.
  std::vector<double> begun;

  // Returns the attempt of a file that began at `time`, as known from other files.
  uint32_t AttemptAt(double time) const;
  // Returns 0 if it is unknown, because a rank below the highest one is missing.
  uint32_t WorldSize() const;
};

// The runs of one reader, and the amount of data in them.
struct PointRuns {
  PointLimits limits;
  std::map<std::string, RunPoints> runs;
  uint64_t points = 0;
  size_t names = 0;
  size_t lanes = 0;

  // Returns nullptr if there are too many.
  PointLane* Lane(const std::string& run, uint32_t rank);
  PointSeries* Series(PointLane* lane, const std::string& name);
};

}  // namespace plumbline::audit
