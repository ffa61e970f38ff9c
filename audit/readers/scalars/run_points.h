// All points of a run, by rank, series and attempt, as its files give them.
//
// A step already seen of a series that is not among its newest 8 begins a new attempt, of all
// series of its rank and split: what was logged after it belongs to that attempt too. A step that
// is among them replaces, unless what is there is no finite number; one that was never seen is put
// in its place.
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

// What is kept of all runs that one reader reads together. Beyond: left out, counted.
struct PointLimits {
  uint64_t points = 64u << 20;  // 8 bytes each; 16 where their steps are not evenly apart
  size_t names = 1u << 16;      // of all ranks and runs
  size_t name_bytes = 512;
  size_t lanes = 1u << 14;  // ranks of all runs
  uint32_t attempts = 4096;
};

// A series during one attempt. `steps` in the order of the file until Order.
struct SeriesChunk {
  uint32_t attempt = 0;
  bool ordered = true;
  int64_t newest = 0;  // step
  StepList steps;
  std::vector<double> values;

  void Add(int64_t step, double value) {
    if (values.size() == values.capacity()) Grow();
    steps.push_back(step);
    values.push_back(value);
  }
  void Order();  // ascending

 private:
  void Grow();
};

class PointSeries {
 public:
  explicit PointSeries(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  // Does this step of this attempt, the newest, begin the next one?
  bool Repeats(uint32_t attempt, int64_t step);
  // True: one more point is held than before.
  bool Add(uint32_t attempt, int64_t step, double value) {
    if (now_ != nullptr && now_->attempt == attempt && step > now_->newest) {
      now_->newest = step;
      now_->Add(step, value);
      if (watched_) seen_.insert(step);
      return true;
    }
    return AddOlder(attempt, step, value);
  }
  // Could a point of this step begin an attempt? Quick, and no means no.
  bool MayRepeat(uint32_t attempt, int64_t step) const {
    return now_ != nullptr && now_->attempt == attempt && step <= now_->newest;
  }
  std::deque<SeriesChunk>& chunks() { return chunks_; }  // by attempt
  const std::deque<SeriesChunk>& chunks() const { return chunks_; }
  SeriesChunk* Chunk(uint32_t attempt);  // nullptr: it has no point in it

  // Who tells points on as they come says how far: what comes for an earlier step, or replaces,
  // then shows. Of the newest attempt.
  void Reported(int64_t step) { reported_ = std::max(reported_, step); }
  bool TakeAltered() { return std::exchange(altered_, false); }
  // From which step to which of the newest ones the steps first fell back, if they then came again
  // in order: at least two.
  const std::optional<std::pair<int64_t, int64_t>>& fell_back() const { return fell_back_; }

 private:
  bool AddOlder(uint32_t attempt, int64_t step, double value);
  // Among the newest of the attempt: where; nullopt: it is not.
  std::optional<size_t> Recent(int64_t step) const;
  void NoteAgain(size_t at);

  std::string name_;
  std::deque<SeriesChunk> chunks_;
  SeriesChunk* now_ = nullptr;    // the last of them
  int64_t reported_ = INT64_MIN;  // step
  bool altered_ = false;          // a point up to there was put in or replaced since
  size_t again_first_ = 0, again_next_ = SIZE_MAX, again_size_ = 0;  // steps that come again
  std::optional<std::pair<int64_t, int64_t>> fell_back_;
  bool watched_ = false;               // its steps are not ascending: seen_ has them
  absl::flat_hash_set<int64_t> seen_;  // of the newest attempt
};

// The files of one rank and split, one after the other.
struct PointPart {
  uint32_t attempt = 0;
  uint64_t attempt_points = 0;  // since it began
  uint64_t files = 0;
};

// One rank of a run.
struct PointLane {
  uint32_t rank = 0;
  std::map<std::string, PointPart> parts;  // by prefix
  std::deque<PointSeries> series;
  absl::flat_hash_map<std::string, PointSeries*> by_name;
  std::optional<int32_t> exit_status;
};

struct RunPoints {
  std::string run;
  std::map<uint32_t, PointLane> lanes;  // by rank
  // When the files began that brought attempts 1, 2, ...; NaN: not known.
  std::vector<double> begun;

  // The attempt that a file belongs to that was begun then, as far as other files tell.
  uint32_t AttemptAt(double time) const;
  // 0: not all ranks below the highest are there, so that nobody knows.
  uint32_t WorldSize() const;
};

// The runs of one reader, and how full they are.
struct PointRuns {
  PointLimits limits;
  std::map<std::string, RunPoints> runs;
  uint64_t points = 0;
  size_t names = 0;
  size_t lanes = 0;

  // nullptr: there are too many.
  PointLane* Lane(const std::string& run, uint32_t rank);
  PointSeries* Series(PointLane* lane, const std::string& name);
};

}  // namespace plumbline::audit
