#include "analysis/series/creep.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace plumbline::analysis {
namespace {

// A power t^p that starts at 0 has q = 2^p - 1. For a square root, q = 0.41. A power of 0.77 has q
// = 0.7.
constexpr double kFewestFaded = 0.7;
// Growth begins after the last point that is within this share of the growth above the lowest
// value.
constexpr double kBegun = 0.1;
constexpr size_t kNewestLows = 5;

double MiddleOf(std::span<const double> values) {
  std::vector<double> copy(values.begin(), values.end());
  return MedianOf(copy);
}

struct Points {
  std::vector<double> x, y;
  size_t size() const { return x.size(); }
  SlopeInterval Slope(size_t from, size_t end) const {
    return TheilSen(std::span(x).subspan(from, end - from), std::span(y).subspan(from, end - from));
  }
};

Points From(const LowCourse& course, size_t from) {
  Points points;
  for (size_t i = from; i < course.size(); ++i) {
    points.x.push_back(static_cast<double>(course.step(i)));
    points.y.push_back(course.value(i));
  }
  return points;
}

double LargestFall(const LowCourse& course) {
  double highest = course.value(0), fall = 0;
  for (size_t i = 1; i < course.size(); ++i) {
    highest = std::max(highest, course.value(i));
    fall = std::max(fall, highest - course.value(i));
  }
  return fall;
}

// Returns the bucket after the last one whose value is at most `level`. If no bucket is above it,
// returns the last bucket.
size_t After(const LowCourse& course, double level) {
  size_t i = course.size();
  while (i > 0 && course.value(i - 1) > level) --i;
  return std::min(i, course.size() - 1);
}

// Returns the first bucket at or after the step that lies at `share` of the range of steps.
size_t At(const Points& points, double share) {
  const double step = points.x.front() + share * (points.x.back() - points.x.front());
  return static_cast<size_t>(std::lower_bound(points.x.begin(), points.x.end(), step) -
                             points.x.begin());
}

// Returns true if the newest points are below the line of the points before them. If growth had
// ended one eighth ago, each point of the newest eighth would lie below the line: on average by a
// sixteenth of all growth.
bool HasEnded(const Points& points) {
  const size_t seventh = std::min(At(points, 7.0 / 8), points.size() - kNewestLows);
  const double slope = points.Slope(0, seventh).slope;
  std::vector<double> off(points.size());
  for (size_t i = 0; i < off.size(); ++i) off[i] = points.y[i] - slope * points.x[i];
  const std::span<const double> all(off);
  const size_t near = std::min(At(points, 5.0 / 8), seventh - 1);
  const double level = MiddleOf(all.subspan(near, seventh - near));
  std::vector<double> before(off.begin(), off.begin() + static_cast<ptrdiff_t>(seventh));
  const double noise = DeviationOf(before);
  const double eighth = (points.x.back() - points.x.front()) / 8;
  return MiddleOf(all.subspan(seventh)) - level < -slope * eighth / 4 ||
         MiddleOf(all.last(kNewestLows)) - level < -std::max(3 * noise, slope * eighth / 64);
}

// Fills `faded` and `unclear`. Returns true if the growth may end below the limit. The limit is
// `left` above the current level.
bool Slows(const Points& points, double left, Creep* creep) {
  const size_t middle = At(points, 0.5);
  const SlopeInterval earlier = points.Slope(0, middle);
  const SlopeInterval later = points.Slope(middle, points.size());
  creep->unclear = later.high >= earlier.low;
  if (!(later.low > 0)) return true;
  creep->faded = earlier.high > 0 ? std::min(1.0, later.low / earlier.high) : 1;
  const double half = later.slope * (points.x.back() - points.x[middle]);
  return creep->faded < kFewestFaded || creep->faded * half < (1 - creep->faded) * left;
}

// Returns true if growth certainly slows down within a newer part of the range, as in a cache that
// began to fill late.
bool SlowsLately(const Points& points, double left) {
  for (const double from : {0.3, 0.5, 0.65, 0.75}) {
    const size_t begin = At(points, from), middle = At(points, (1 + from) / 2);
    const SlopeInterval earlier = points.Slope(begin, middle);
    const SlopeInterval later = points.Slope(middle, points.size());
    if (later.high < kFewestFaded * earlier.low) return true;
    const double half = points.x.back() - points.x[middle];
    if (from <= 0.5 && later.slope * later.slope * half < (earlier.slope - later.slope) * left)
      return true;
  }
  return false;
}

// Returns true if the newer half of the growth is one or two jumps. In steady growth, each eighth
// has at least a third of its share.
bool Jumps(const Points& points, double slope) {
  constexpr int kParts = 8;
  double before = 0;
  for (int part = kParts / 2 - 1; part < kParts; ++part) {
    const size_t begin = At(points, static_cast<double>(part) / kParts);
    const size_t end =
        part + 1 == kParts ? points.size() : At(points, static_cast<double>(part + 1) / kParts);
    if (begin == end) return true;
    const double level = MiddleOf(std::span(points.y).subspan(begin, end - begin));
    const double wide = (points.x.back() - points.x.front()) / kParts;
    if (part >= kParts / 2 && level - before < slope * wide / 3) return true;
    before = level;
  }
  return false;
}

}  // namespace

void LowCourse::Add(uint32_t attempt, int64_t step, double value) {
  if (attempt != attempt_) {
    *this = {};
    attempt_ = attempt;
  }
  last_ = step;
  if (++points_ <= kStartUp) return;
  Put(step >> bits_, value);
  while (least_.size() > kMostBuckets) Thin();
}

void LowCourse::Put(int64_t bucket, double value) {
  if (!least_.empty() && least_.back().first >= bucket) {
    least_.back().second = std::min(least_.back().second, value);
  } else {
    least_.emplace_back(bucket, value);
  }
}

void LowCourse::Thin() {
  ++bits_;
  const auto before = std::exchange(least_, {});
  for (const auto& [bucket, value] : before) Put(bucket >> 1, value);
}

double LowCourse::Newest() const {
  double newest[kNewestLows];
  const size_t count = std::min(kNewestLows, least_.size());
  for (size_t i = 0; i < count; ++i) newest[i] = least_[least_.size() - count + i].second;
  return MedianOf(std::span(newest, count));
}

double LowCourse::Lowest() const {
  double lowest = least_.front().second;
  for (const auto& [bucket, value] : least_) lowest = std::min(lowest, value);
  return lowest;
}

Creep LookForCreep(const LowCourse& course, double limit) {
  Creep creep;
  if (course.size() < Creep::kFewestPoints || course.Reach(0) < Creep::kFewestSteps) return creep;
  // Test whether the newer half grows.
  size_t from = course.size() / 2;
  if (course.Reach(from) < Creep::kFewestSteps) from = 0;
  Points points = From(course, from);
  creep.kind = Creep::Kind::kFlat;
  creep.slope = points.Slope(0, points.size());
  creep.first = course.step(from);
  creep.last = course.last();
  creep.now = course.Newest();
  creep.fall = LargestFall(course);
  creep.growth = creep.now - course.Lowest();
  if (!(creep.slope.low > 0)) return creep;
  // Memory that was freed again is not a leak. Noise also falls, so the growth must exceed noise,
  // too.
  creep.kind = Creep::Kind::kFell;
  if (!(creep.growth > 0 && creep.growth >= 2 * creep.fall)) return creep;
  // Uses all of the growth, from its beginning.
  creep.kind = Creep::Kind::kFlat;
  from = After(course, course.Lowest() + kBegun * creep.growth);
  if (course.Reach(from) < Creep::kFewestSteps * 3 / 5) return creep;
  points = From(course, from);
  if (points.size() < Creep::kFewestPoints * 3 / 5) return creep;
  const SlopeInterval whole = points.Slope(0, points.size());
  if (!(whole.low > 0)) return creep;
  creep.slope = whole;
  creep.first = course.step(from);
  creep.kind = Creep::Kind::kSlows;
  if (Slows(points, std::max(0.0, limit - creep.now), &creep)) return creep;
  if (SlowsLately(points, std::max(0.0, limit - creep.now))) return creep;
  creep.kind = Creep::Kind::kFlat;
  if (Jumps(points, whole.slope)) return creep;
  creep.kind = HasEnded(points) ? Creep::Kind::kEnded : Creep::Kind::kGrows;
  return creep;
}

}  // namespace plumbline::analysis
