// Arrays of a witness for display, bounded, and equal for equal evidence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/archive.h"
#include "google/protobuf/struct.pb.h"

namespace plumbline::analysis {

inline constexpr size_t kMostInRow = 192;                       // most items that are drawn in one
                                                                // row
inline constexpr size_t kMostPoints = 288, kMostOutliers = 32;  // of a scatter

// Adds a list under `key`, with its numbers rounded to six significant digits.
void PutNumbers(google::protobuf::Struct& s, const std::string& key,
                const std::vector<double>& values);

// Returns at most `most` ascending indices below `count`: evenly spread ones, and those of
// `always`.
std::vector<size_t> Evenly(size_t count, size_t most, std::vector<size_t> always = {});

// Samples the points of a scatter plot as they arrive: each n-th, where n doubles so that at most
// kMostPoints are kept, and the kMostOutliers points with the largest |far|. The sample depends
// only on the points and their order. Not thread-safe.
class PointSample {
 public:
  struct Point {
    double a = 0, b = 0, c = 0;  // the meaning is defined by the caller
    double far = 0;              // distance from the bulk
    void Persist(Archive& archive) { archive(a, b, c, far); }
  };
  void Add(const Point& point);  // `far` must be finite
  // Returns the evenly spread points first, then outliers that are not among them.
  std::vector<Point> points() const;
  uint64_t seen() const { return seen_; }
  void Persist(Archive& archive) { archive(seen_, every_, even_, outliers_); }

 private:
  struct Numbered {
    uint64_t number = 0;
    Point point;
    void Persist(Archive& archive) { archive(number, point); }
  };
  uint64_t seen_ = 0, every_ = 1;
  std::vector<Numbered> even_, outliers_;  // the latter by |far|, largest first
};

}  // namespace plumbline::analysis
