// The course of the age of samples, over the points of a metric. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/archive.h"

namespace plumbline::analysis {

// Detects an age of samples that grows without end: the medians of the four quarters of 200 or
// more points rise, each of the last two by a quarter, to 16 or more. An age that is bounded rises
// at first too, and that of rare updates rises between two of them.
class StalenessCourse {
 public:
  static constexpr uint64_t kFewest = 200;
  static constexpr double kLimit = 16, kGrows = 1.25;
  // Takes a point; ignores NaN and infinity. Returns true if the condition holds.
  bool Take(int64_t step, double value);
  int64_t onset() const { return onset_; }
  uint64_t points() const { return points_; }
  void Persist(Archive& a) { a(points_, stride_, skipped_, kept_, onset_); }

 private:
  struct Point {
    int64_t step = 0;
    double value = 0;
    void Persist(Archive& a) { a(step, value); }
  };
  double MedianOfQuarter(size_t quarter) const;

  uint64_t points_ = 0, stride_ = 1, skipped_ = 0;
  std::vector<Point> kept_;  // every stride-th point
  int64_t onset_ = 0;
};

}  // namespace plumbline::analysis
