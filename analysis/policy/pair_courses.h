// The courses of preference training (margins, accuracies of pairs) and of the age of samples.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "analysis/policy/collapse_courses.h"
#include "analysis/policy/mismatch_course.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Detects a margin that stays below 0: its level, a median of five points, is below 0 by 1.5 times
// the noise of a point, in 20 points in a row.
class MarginCourse {
 public:
  static constexpr uint64_t kInARow = 20;
  static constexpr double kNoise = 1.5;
  // Takes a point. Returns true at the 20th.
  bool Take(int64_t step, double value);
  int64_t onset() const { return below_.first; }
  double level() const { return level_.level(); }
  void Persist(Archive& a) { a(level_, below_, points_, newest_, differences_); }

 private:
  LevelOfFive level_;
  PointsInARow below_;
  uint64_t points_ = 0;
  double newest_ = NAN;
  double differences_ = 0;  // sum of |difference| of neighbours
};

// Detects pairs that are never learnt: the mean accuracy of all points is within 0.5 ± 0.02, that
// of the newest 50 too, and there are 200 points or more.
class PairCourse {
 public:
  static constexpr uint64_t kFewest = 200;
  static constexpr size_t kNewest = 50;
  static constexpr double kNear = 0.02;
  // Takes a point. Returns true if the condition holds.
  bool Take(double value);
  double mean() const { return sum_ / static_cast<double>(points_); }
  uint64_t points() const { return points_; }
  void Persist(Archive& a) { a(points_, sum_, newest_); }

 private:
  uint64_t points_ = 0;
  double sum_ = 0;
  std::deque<double> newest_;
};

// Detects an age of samples that grows without end: the medians of the four quarters of 40 or more
// points rise, each of the last two by a quarter, to 16 or more.
class StalenessCourse {
 public:
  static constexpr uint64_t kFewest = 40;
  static constexpr double kLimit = 16, kGrows = 1.25;
  // Takes a point. Returns true if the condition holds.
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
