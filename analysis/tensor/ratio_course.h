// The course of one ratio |change| / |weight|, point by point: does it stay outside of where
// healthy training keeps it, while the learning rate is at work?
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "base/archive.h"

namespace plumbline::rules {

// Is the learning rate at work: no warm-up any more, and at least a tenth of its maximum?
class RateAtWork {
 public:
  // A rate that was told; what is no number or negative says nothing.
  void Tell(double rate);
  bool told() const { return highest_ >= 0; }
  // For this many values none was a new maximum, and the newest is a tenth of it.
  // A rate of 0 is none: health/learning-rate tells of it.
  bool at_work() const {
    return newest_ > 0 && since_highest_ >= kSettled && newest_ >= 0.1 * highest_;
  }
  double newest() const { return newest_; }

  void Persist(Archive& a) { a(highest_, newest_, since_highest_); }

 private:
  static constexpr uint64_t kSettled = 10;
  double highest_ = -1;  // nothing was told
  double newest_ = 0;
  uint64_t since_highest_ = 0;
};

struct RatioLimits {
  double low = -4, high = -1;  // log10
  uint64_t points = 100;       // outside in a row
};

// Points that lie on one side, in a row, to the newest.
struct OutsideRun {
  int side = 0;  // -1 below, 1 above, 0 none
  uint64_t points = 0;
  uint64_t zeros = 0;  // of them: nothing changed at all
  int64_t first = 0;
  int64_t last = 0;
  // Of log10 of what is not zero: all, the first ones, the newest ones.
  double sum = 0;
  double first_sum = 0;
  std::deque<double> newest;
  double gradient_sum = 0;  // log10, of points that told one
  uint64_t gradients = 0;
  uint64_t no_gradient = 0;  // points whose gradient was exactly 0

  double mean() const { return sum / static_cast<double>(points - zeros); }  // NaN: all are zero
  int64_t span() const { return last - first + 1; }                          // steps
  // The newest half is more than half again as large as the first ones: a warm-up.
  bool rising() const;
  void Persist(Archive& a) {
    a(side, points, zeros, first, last, sum, first_sum, newest, gradient_sum, gradients);
    a(no_gradient);
  }

  static constexpr size_t kHalf = 50;
};

class RatioCourse {
 public:
  // What a point is for the course.
  enum class Taken : uint8_t { kCounted, kNoNumber, kResting };

  // `ratio`: |change| / |weight|, >= 0. `at_work`: of the rate; nullopt: no rate is known.
  // `gradient`: its norm, where known. Steps ascend; NaN neither counts nor ends a run.
  Taken Take(int64_t step, double ratio, std::optional<bool> at_work,
             std::optional<double> gradient, const RatioLimits& limits);
  // What was outside goes on in another attempt as a new run.
  void Restart() { run_ = OutsideRun(); }

  const OutsideRun& run() const { return run_; }
  // Long enough outside: so many points, or a fifth of them (20 at least) over three times as many
  // steps.
  bool Outside(const RatioLimits& limits) const;
  // Was there a rate for every point of the run?
  bool rated() const { return run_unrated_ == 0; }
  // It was inside, and the gradient's norm fell as far or further (an optimizer's epsilon holds
  // back nothing of a fall, but all that lies below it), or is 0: a loss that has been minimised,
  // or gradients that vanish; no wrong rate.
  bool FellWithGradient() const;
  // It was inside, and what the gradient's fall leaves of the way is no more than a factor of two
  // and twice the deviation of what was inside: noise about the limit, which may stay there for
  // long.
  bool Hovers() const;
  // Without a rate: a decay, or a warm-up, would look like this run.
  bool MayBeSchedule() const;

  uint64_t counted() const { return counted_; }
  uint64_t resting() const { return resting_; }
  uint64_t no_number() const { return no_number_; }

  void Persist(Archive& a) {
    a(run_, run_unrated_, counted_, resting_, no_number_, highest_, inside_, inside_mean_);
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
  uint64_t no_number_ = 0;
  double highest_ = -HUGE_VAL;  // log10, of counted points
  uint64_t inside_ = 0;
  double inside_mean_ = 0;  // log10, here and below
  uint64_t inside_gradients_ = 0;
  double inside_gradient_mean_ = 0;
  uint64_t inside_slow_ = 0;     // points of the next two
  double inside_slow_mean_ = 0;  // over more points
  double inside_squares_ = 0;    // mean square about it
};

}  // namespace plumbline::rules
