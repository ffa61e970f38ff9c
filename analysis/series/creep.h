// A level that creeps: memory that grows, at a rate that does not fade, up to the newest point.
//
// What fades is a cache that fills, and no leak. Of all growth that slows, a level that nears its
// end exponentially promises least: where each half of the growth is q times as steep as the one
// before it, all that is still to come is q / (1 - q) times what the newest half brought. A creep
// is told where even that, with the smallest q that the noise allows, is beyond the limit; and
// where q is so large that no root of time grows like this. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/series/robust.h"
#include "base/archive.h"

namespace plumbline::rules {

// The smallest values of neighbouring steps, thinned out to a few hundred. Steps ascend.
class LowCourse {
 public:
  static constexpr int64_t kStartUp = 10;  // points of an attempt that do not count
  static constexpr size_t kMostBuckets = 256;

  // `value` is finite. Another attempt begins anew.
  void Add(uint32_t attempt, int64_t step, double value);

  uint32_t attempt() const { return attempt_; }
  int64_t points() const { return points_; }  // of the attempt, those of its start too
  int64_t last() const { return last_; }      // step
  size_t size() const { return least_.size(); }
  int64_t step(size_t bucket) const { return least_[bucket].first << bits_; }
  double value(size_t bucket) const { return least_[bucket].second; }
  // Steps from this bucket's first to the last bucket's last.
  int64_t Reach(size_t from) const {
    return (least_.back().first - least_[from].first + 1) << bits_;
  }
  // The middle of the newest few; the least of all. Of one bucket at least.
  double Newest() const;
  double Lowest() const;

  void Persist(Archive& a) { a(attempt_, points_, bits_, least_, last_); }

 private:
  void Put(int64_t bucket, double value);
  void Thin();

  uint32_t attempt_ = 0;
  int64_t points_ = 0;
  int bits_ = 0;                                   // a bucket is 2^bits steps
  std::vector<std::pair<int64_t, double>> least_;  // by bucket: its number, its smallest value
  int64_t last_ = 0;
};

struct Creep {
  enum class Kind {
    kFew,    // too few steps
    kFlat,   // does not grow, or not in all parts
    kFell,   // grew by less than twice what it fell back by before
    kSlows,  // may be on the way to a level below the limit, or grow like a root
    kEnded,  // grew, and the newest points do not
    kGrows,  // on and on, up to the limit
  };
  static constexpr int64_t kFewestSteps = 50;
  static constexpr size_t kFewestPoints = 40;

  Kind kind = Kind::kFew;
  SlopeInterval slope;          // a step, from `first` to `last`
  int64_t first = 0, last = 0;  // steps: since it grows; of other kinds the newer half
  double now = 0;               // by the newest points
  double fall = 0, growth = 0;  // the largest fall from a level reached before; all growth
  bool unclear = false;         // of kSlows: whether it does is not sure
  double faded = 0;             // q at least: the newer half's slope, as a part of the older one's
};

// `limit`: where it may not get to; 0: unknown, and any growth that goes on is a creep.
Creep LookForCreep(const LowCourse& course, double limit);

}  // namespace plumbline::rules
