// Arrays of a witness that a person looks at, bounded and the same for the same evidence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/archive.h"
#include "google/protobuf/struct.pb.h"

namespace plumbline::rules {

inline constexpr size_t kMostInRow = 192;  // things that are drawn beside each other
inline constexpr size_t kMostPoints = 288, kMostOutliers = 32;  // of a scatter

// A list under `key`, its numbers rounded to six significant digits.
void PutNumbers(google::protobuf::Struct& s, const std::string& key,
                const std::vector<double>& values);

// Ascending indices below `count`, at most `most` of them: evenly from all, and those of `always`.
std::vector<size_t> Evenly(size_t count, size_t most, std::vector<size_t> always = {});

// Points of a scatter, taken one by one: each n-th, n doubling so that at most kMostPoints are
// kept, and the kMostOutliers largest |far| of all. A function of the points and their order. Not
// thread-safe.
class PointSample {
 public:
  struct Point {
    double a = 0, b = 0, c = 0;  // the owner's
    double far = 0;              // how far out it lies
    void Persist(Archive& archive) { archive(a, b, c, far); }
  };
  void Add(const Point& point);  // finite `far`
  // Evenly ones first, then outliers that are not among them.
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

}  // namespace plumbline::rules
