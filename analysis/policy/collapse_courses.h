// The courses of a policy's reward, entropy and distance to its reference.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

#include "analysis/policy/mismatch_course.h"
#include "base/archive.h"

namespace plumbline::analysis {

// The newest `most` values; their median is the level.
class NewestLevel {
 public:
  explicit NewestLevel(size_t most) : most_(most) {}
  void Take(double value) {
    newest_.push_back(value);
    if (newest_.size() > most_) newest_.pop_front();
  }
  bool known() const { return newest_.size() == most_; }
  double level() const;
  const std::deque<double>& newest() const { return newest_; }
  void Persist(Archive& a) { a(newest_); }

 private:
  size_t most_;
  std::deque<double> newest_;
};
// The newest five values.
class LevelOfFive : public NewestLevel {
 public:
  static constexpr size_t kFive = 5;
  LevelOfFive() : NewestLevel(kFive) {}
};

// Detects a mean reward that fell permanently. The level is a median of ten points. In ten
// consecutive levels (or in an eighth of the points, if these are more), it must be below the best
// level by a part of the rise, and by four times the noise.
class RewardFall {
 public:
  static constexpr size_t kTen = 10;
  static constexpr double kHalf = 0.5, kMost = 0.85;  // parts of the rise
  // `sigma` is the noise of a point. Takes a point. Returns true if the fall has just reached kHalf
  // or kMost.
  bool Take(int64_t step, double value, double sigma);
  // kHalf or kMost. 0 if the reward did not fall, or came back.
  double part() const { return part_; }
  int64_t onset() const { return onset_; }  // the first step whose value is below kHalf
  double best() const { return best_; }
  double level() const { return level_.level(); }
  const std::deque<double>& newest() const { return level_.newest(); }
  // Returns the height of the best level above the first one, or above 0 for a reward that never
  // rose.
  double reached() const { return std::max(best_ - start_, std::fabs(best_)); }
  void Persist(Archive& a) {
    a(level_, newest_, points_, start_, best_, half_, most_, part_, onset_, longest_, fallen_);
  }

 private:
  // Returns the step of the first of the newest points that is below `bound`, as most after it are.
  int64_t FirstBelow(double bound) const;

  NewestLevel level_{kTen};
  std::deque<std::pair<int64_t, double>> newest_;  // steps and values of level_
  uint64_t points_ = 0;
  double start_ = std::numeric_limits<double>::quiet_NaN();
  double best_ = -std::numeric_limits<double>::infinity();
  PointsInARow half_, most_;
  double part_ = 0;
  int64_t onset_ = 0;
  // Number of levels below kHalf: of the longest fall that came back, and of the newest fall.
  uint64_t longest_ = 0, fallen_ = 0;
};

// A mean reward. Levels are medians of five points.
class RewardCourse {
 public:
  // Takes a point. Returns true if the reward has just fallen permanently (RewardFall).
  bool Take(int64_t step, double value);
  const RewardFall& fall() const { return fall_; }
  bool known() const { return points_ >= 2 * LevelOfFive::kFive; }
  double level() const { return level_.level(); }
  double best() const { return best_; }
  int64_t best_step() const { return best_step_; }
  // Returns the noise of a point, from the differences of neighbours.
  double sigma() const;
  // True if the reward has one value in all points, or is never below 0 on the level of its first
  // five points and never above a twentieth: no answer gets the reward of a right one.
  bool none() const {
    constexpr double kNearZero = 0.05;
    return points_ > 0 && (equal() == points_ || (start_ >= 0 && highest_ <= kNearZero));
  }
  double highest() const { return highest_; }
  // True if the level is below the best one by a third of the reward's rise, and by more than the
  // noise.
  bool fell() const { return fell_by(1.0 / 3); }
  // The same for four fifths of the rise.
  bool fell_back() const { return fell_by(0.8); }
  bool fell_by(double part) const;
  // True if the reward has risen by more than its noise, and its level is, within the noise, the
  // best one.
  bool at_its_best() const;
  // Returns the number of newest consecutive points with the same value.
  uint64_t equal() const { return equal_ + 1; }
  // True if the reward has risen, and of its newest ten values five or more are its highest one,
  // the others within a twentieth of the rise.
  bool solved() const;
  // True if the best level is now above `best`, an earlier best level, by more than the noise.
  bool rose_above(double best) const { return best_ - best > 1.5 * sigma(); }
  uint64_t points() const { return points_; }
  void Persist(Archive& a) {
    a(points_, level_, start_, best_, best_step_, newest_, differences_, highest_, equal_, fall_);
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
  uint64_t equal_ = 0;  // number of consecutive points that equal the one before
  RewardFall fall_;
};

// Detects an entropy that falls below a tenth of its level in the first ten points.
class EntropyCourse {
 public:
  static constexpr size_t kFirst = 10;
  static constexpr double kPart = 0.1;
  // Takes a point. Returns true if the level has just fallen below this part.
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
  int64_t onset_ = 0;  // step of the first consecutive point below this part
  // An entropy of densities may be negative; then a tenth of it has no meaning.
  bool positive_ = true;
  bool collapsed_ = false;
};

// A distance to the reference. Detects growth by e-folds, and a distance that is always exactly 0.
class ReferenceCourse {
 public:
  static constexpr uint64_t kFewest = 20;      // number of points
  static constexpr uint64_t kFewestZero = 50;  // points that are all exactly 0
  static constexpr uint64_t kNegative = 10;    // number of consecutive points
  static constexpr double kQuarterFolds = 2;   // e-folds within the newest quarter of the points
  static constexpr double kHalfFolds = 3.5;    // e-folds within the newest half of the points
  // Consecutive points at which it has grown. Three spikes of single points among five are fewer.
  static constexpr uint64_t kInARow = 3;
  // Below these values, growth is normal for a policy that leaves its reference. In nats per token,
  // and in nats per sequence (for a series that reaches 5 within its first ten points).
  static constexpr double kFloor = 0.5, kSequenceFloor = 100;

  // Takes a point. Returns true at the first point at which the distance grows by e-folds.
  bool Take(int64_t step, double value);
  uint64_t points() const { return points_; }
  bool always_zero() const { return points_ > 0 && zeros_ == points_; }
  // True from the tenth consecutive point on at which the level, a median of five, is below -1 and
  // below -3 times the noise of a point. A mean of log ratios of sampled tokens does not become
  // that low.
  bool negative() const { return negative_.count >= kNegative; }
  int64_t negative_since() const { return negative_.first; }
  double folds() const { return folds_; }
  double newest() const { return newest_; }
  int64_t onset() const { return onset_; }
  void Persist(Archive& a) {
    a(points_, zeros_, stride_, skipped_, early_, kept_, newest_, folds_, onset_, grown_);
    a(level_, differences_, negative_, growing_);
  }

 private:
  struct Point {
    int64_t step = 0;
    double value = 0;
    void Persist(Archive& a) { a(step, value); }
  };
  static constexpr size_t kOfLevel = 5;
  // Returns the median of the last five kept points before `end`.
  double MedianAt(size_t end) const;
  bool Grows(size_t window, double folds);

  uint64_t points_ = 0, zeros_ = 0;
  uint64_t stride_ = 1, skipped_ = 0;
  double early_ = 0;         // the highest of the first ten points
  std::vector<Point> kept_;  // every stride-th point, at most kMost points
  double newest_ = 0, folds_ = 0;
  int64_t onset_ = 0;
  bool grown_ = false;
  uint64_t growing_ = 0;  // consecutive points at which it has grown
  LevelOfFive level_;
  double differences_ = 0;  // sum of |difference| of neighbours
  PointsInARow negative_;
};

}  // namespace plumbline::analysis
