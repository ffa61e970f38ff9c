// Detects a level that creeps: memory that grows up to the newest point, at a rate that does not
// decrease.
//
// If the rate decreases, it is a cache that fills, not a leak. Among all kinds of slowing growth, a
// level that approaches its end exponentially has the least remaining growth. If each half of the
// growth is q times as steep as the half before it, the remaining growth is q / (1 - q) times the
// growth of the newest half. A creep is reported if that amount exceeds the limit even with the
// smallest q that the noise allows. It is also reported if q is larger than that of any root of
// time. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/series/robust.h"
#include "base/archive.h"

namespace plumbline::analysis {

// The smallest value of each bucket of consecutive steps, for at most a few hundred buckets. Steps
// ascend.
class LowCourse {
 public:
  static constexpr int64_t kStartUp = 10;  // first points of an attempt that are ignored
  static constexpr size_t kMostBuckets = 256;

  // `value` must be finite. If `attempt` changes, the course starts again.
  void Add(uint32_t attempt, int64_t step, double value);

  uint32_t attempt() const { return attempt_; }
  // Number of points of the attempt, including its start-up.
  int64_t points() const { return points_; }
  int64_t last() const { return last_; }  // the newest step
  size_t size() const { return least_.size(); }
  int64_t step(size_t bucket) const { return least_[bucket].first << bits_; }
  double value(size_t bucket) const { return least_[bucket].second; }
  // Returns the number of steps from the first step of bucket `from` to the last step of the last
  // bucket.
  int64_t Reach(size_t from) const {
    return (least_.back().first - least_[from].first + 1) << bits_;
  }
  // Newest returns the median of the newest few buckets, and Lowest the smallest value of all. At
  // least one bucket must exist.
  double Newest() const;
  double Lowest() const;

  void Persist(Archive& a) { a(attempt_, points_, bits_, least_, last_); }

 private:
  void Put(int64_t bucket, double value);
  void Thin();

  uint32_t attempt_ = 0;
  int64_t points_ = 0;
  int bits_ = 0;                                   // a bucket has 2^bits steps
  std::vector<std::pair<int64_t, double>> least_;  // per bucket: its number and its smallest value
  int64_t last_ = 0;
};

struct Creep {
  enum class Kind {
    kFew,    // there are too few steps
    kFlat,   // the series does not grow, or not in all parts
    kFell,   // grew by less than twice its earlier fall
    kSlows,  // may end at a level below the limit, or grows like a root
    kEnded,  // grew, but the newest points do not
    kGrows,  // keeps growing, up to the limit
  };
  static constexpr int64_t kFewestSteps = 50;
  static constexpr size_t kFewestPoints = 40;

  Kind kind = Kind::kFew;
  SlopeInterval slope;  // slope per step, from `first` to `last`
  // Range of steps: if it grows, since the growth began; else the newer half.
  int64_t first = 0, last = 0;
  double now = 0;               // level of the newest points
  double fall = 0, growth = 0;  // largest fall from an earlier level; total growth
  bool unclear = false;         // if kSlows: it is not certain that the growth slows
  double faded = 0;  // lower bound of q: the slope of the newer half as a share of the older one's
};

// `limit` is the level that must not be reached. If `limit` is 0, it is unknown, and any growth
// that continues is a creep.
Creep LookForCreep(const LowCourse& course, double limit);

}  // namespace plumbline::analysis
