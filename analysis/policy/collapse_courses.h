// The courses of a policy's reward, entropy and distance to its reference.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

#include "base/archive.h"

namespace plumbline::analysis {

// The newest five values; their median is the level.
class LevelOfFive {
 public:
  static constexpr size_t kFive = 5;
  void Take(double value) {
    newest_.push_back(value);
    if (newest_.size() > kFive) newest_.pop_front();
  }
  bool known() const { return newest_.size() == kFive; }
  double level() const;
  void Persist(Archive& a) { a(newest_); }

 private:
  std::deque<double> newest_;
};

// A mean reward. Levels are medians of five points.
class RewardCourse {
 public:
  void Take(int64_t step, double value);
  bool known() const { return points_ >= 2 * LevelOfFive::kFive; }
  double level() const { return level_.level(); }
  double best() const { return best_; }
  int64_t best_step() const { return best_step_; }
  // The noise of a point, from the differences of neighbours.
  double sigma() const;
  // True if the level is below the best by a third of what the reward rose, and by the noise.
  bool fell() const { return fell_by(1.0 / 3); }
  // So too by four fifths.
  bool fell_back() const { return fell_by(0.8); }
  bool fell_by(double part) const;
  // True if the reward has risen beyond its noise and its level is at the best, within the noise.
  bool at_its_best() const;
  // Points in a row that have one value.
  uint64_t equal() const { return equal_ + 1; }
  // True if the reward has risen, and its newest ten values are equal and its highest.
  bool solved() const;
  // True if the best is now above that earlier best, beyond the noise.
  bool rose_above(double best) const { return best_ - best > 1.5 * sigma(); }
  uint64_t points() const { return points_; }
  void Persist(Archive& a) {
    a(points_, level_, start_, best_, best_step_, newest_, differences_, highest_, equal_);
  }

 private:
  uint64_t points_ = 0;
  LevelOfFive level_;
  double start_ = std::numeric_limits<double>::quiet_NaN();  // the first level
  double best_ = -std::numeric_limits<double>::infinity();
  int64_t best_step_ = 0;
  double newest_ = std::numeric_limits<double>::quiet_NaN();
  double differences_ = 0;  // sum of |difference| of neighbours
  double highest_ = -std::numeric_limits<double>::infinity();
  uint64_t equal_ = 0;  // points in a row that equal the one before
};

// An entropy: below a tenth of what it was in its first ten points.
class EntropyCourse {
 public:
  static constexpr size_t kFirst = 10;
  static constexpr double kPart = 0.1;
  // Returns true at the point at which the level has just fallen below the part.
  bool Take(int64_t step, double value);
  double start() const { return start_; }
  double level() const { return level_.level(); }
  int64_t onset() const { return onset_; }
  uint64_t points() const { return points_; }
  bool positive() const { return positive_; }
  void Persist(Archive& a) { a(points_, first_, start_, level_, onset_, positive_, collapsed_); }

 private:
  uint64_t points_ = 0;
  std::vector<double> first_;  // empty once start_ is known
  double start_ = std::numeric_limits<double>::quiet_NaN();
  LevelOfFive level_;
  int64_t onset_ = 0;     // the first point below the part, of those that lead to the level
  bool positive_ = true;  // an entropy of densities may be negative, and has no tenth
  bool collapsed_ = false;
};

// A distance to the reference: grows by e-folds, or is exactly 0 for ever.
class ReferenceCourse {
 public:
  static constexpr uint64_t kFewest = 20;      // points
  static constexpr uint64_t kFewestZero = 50;  // points that are all exactly 0
  static constexpr double kQuarterFolds = 2;   // e-folds within the newest quarter of the points
  static constexpr double kHalfFolds = 3.5;    // ... within the newest half
  // Below these a growth is the ordinary one of a policy that leaves its reference: nats per token,
  // and nats per sequence (a series that reaches 5 within its first ten points).
  static constexpr double kFloor = 0.5, kSequenceFloor = 100;

  // Returns true at the first point at which it grows by e-folds.
  bool Take(int64_t step, double value);
  uint64_t points() const { return points_; }
  bool always_zero() const { return points_ > 0 && zeros_ == points_; }
  double folds() const { return folds_; }
  double newest() const { return newest_; }
  int64_t onset() const { return onset_; }
  void Persist(Archive& a) {
    a(points_, zeros_, stride_, skipped_, early_, kept_, newest_, folds_, onset_, grown_);
  }

 private:
  struct Point {
    int64_t step = 0;
    double value = 0;
    void Persist(Archive& a) { a(step, value); }
  };
  double MedianAt(size_t end) const;  // of three kept points that end before `end`
  bool Grows(size_t window, double folds);

  uint64_t points_ = 0, zeros_ = 0;
  uint64_t stride_ = 1, skipped_ = 0;
  double early_ = 0;         // the highest of the first ten points
  std::vector<Point> kept_;  // every stride-th point, at most kMost
  double newest_ = 0, folds_ = 0;
  int64_t onset_ = 0;
  bool grown_ = false;
};

}  // namespace plumbline::analysis
