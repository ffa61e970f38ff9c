// Follows one ratio |change| / |weight|, point by point, and detects whether it stays outside the
// range of healthy training while the learning rate is active.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "base/archive.h"

namespace plumbline::analysis {

// Decides whether the learning rate is active: the warm-up is over, and it is at least a tenth of
// its maximum.
class RateAtWork {
 public:
  // Takes a recorded rate. Non-finite and negative values are ignored.
  void Take(double rate);
  bool reported() const { return highest_ >= 0; }
  // True if the last kSettled values set no new maximum, and the newest is at least a tenth of it.
  // A rate of 0 is never active: health/learning-rate reports it.
  bool at_work() const {
    return newest_ > 0 && since_highest_ >= kSettled && newest_ >= 0.1 * highest_;
  }
  double newest() const { return newest_; }

  void Persist(Archive& a) { a(highest_, newest_, since_highest_); }

 private:
  static constexpr uint64_t kSettled = 10;
  double highest_ = -1;  // -1 if no rate was recorded
  double newest_ = 0;
  uint64_t since_highest_ = 0;
};

struct RatioLimits {
  double low = -4, high = -1;  // log10
  uint64_t points = 100;       // consecutive points outside
};

// The newest consecutive points that lie on one side.
struct OutsideRun {
  int side = 0;  // -1 below, 1 above, 0 none
  uint64_t points = 0;
  uint64_t zeros = 0;  // of these: points with no change at all
  int64_t first = 0;
  int64_t last = 0;
  // Sums of log10 over the non-zero points: all, the first ones, the newest ones.
  double sum = 0;
  double first_sum = 0;
  std::deque<double> newest;
  double gradient_sum = 0;  // log10, over points that have a gradient
  uint64_t gradients = 0;
  uint64_t no_gradient = 0;  // points whose gradient was exactly 0

  double mean() const { return sum / static_cast<double>(points - zeros); }  // NaN if all are zero
  int64_t span() const { return last - first + 1; }                          // steps
  // True if the newest half is more than 1.5 times the first points: a warm-up.
  bool rising() const;
  void Persist(Archive& a) {
    a(side, points, zeros, first, last, sum, first_sum, newest, gradient_sum, gradients);
    a(no_gradient);
  }

  static constexpr size_t kHalf = 50;
};

class RatioCourse {
 public:
  // How the course used a point.
  enum class Taken : uint8_t { kCounted, kNonFinite, kResting };

  // Takes a point. `ratio` is |change| / |weight|, >= 0. `at_work` is true if the learning rate is
  // high enough to judge the ratio; nullopt if no rate is known. `gradient` is its norm, if known.
  // Steps ascend. A ratio that is NaN or infinite neither counts nor ends a run.
  Taken Take(int64_t step, double ratio, std::optional<bool> at_work,
             std::optional<double> gradient, const RatioLimits& limits);
  // Ends the current run, because another attempt begins.
  void Restart() { run_ = OutsideRun(); }

  const OutsideRun& run() const { return run_; }
  // True if the run is long enough: limits.points points, or a fifth of them (at least 20) over
  // twice as many steps. A twelfth (at least 8) is enough if no point was ever nearer than two
  // decades below the limit.
  bool Outside(const RatioLimits& limits) const;
  // True if a rate was known for every point of the run.
  bool rated() const { return run_unrated_ == 0; }
  // True if the ratio was inside before and the gradient's norm fell as far or further, or is 0.
  // Then the loss has been minimised, or gradients vanish, and the rate is not wrong. (An
  // optimizer's epsilon affects only values below it.)
  bool FellWithGradient() const;
  // True if the ratio was inside before, and the part of its fall that the gradient does not
  // explain is at most a factor of two and twice the deviation of the points inside. That is noise
  // around the limit. It may last long.
  bool Hovers() const;
  // True if no rate is known and a decay or a warm-up would look like this run.
  bool MayBeSchedule() const;

  uint64_t counted() const { return counted_; }
  uint64_t resting() const { return resting_; }
  uint64_t non_finite() const { return non_finite_; }

  void Persist(Archive& a) {
    a(run_, run_unrated_, counted_, resting_, non_finite_, highest_, inside_, inside_mean_);
    a(inside_gradients_, inside_gradient_mean_, inside_slow_, inside_slow_mean_, inside_squares_);
  }

 private:
  double GradientFall() const;
  void Inside(double log_ratio, std::optional<double> log_gradient);
  void Add(int64_t step, int side, double log_ratio, std::optional<double> log_gradient);

  OutsideRun run_;
  uint64_t run_unrated_ = 0;
  uint64_t counted_ = 0;
  uint64_t resting_ = 0;
  uint64_t non_finite_ = 0;
  double highest_ = -HUGE_VAL;  // log10, over counted points
  uint64_t inside_ = 0;
  double inside_mean_ = 0;  // log10, here and below
  uint64_t inside_gradients_ = 0;
  double inside_gradient_mean_ = 0;
  uint64_t inside_slow_ = 0;     // number of points in inside_slow_mean_ and inside_squares_
  double inside_slow_mean_ = 0;  // over more points
  double inside_squares_ = 0;    // mean square deviation from inside_slow_mean_
};

}  // namespace plumbline::analysis
