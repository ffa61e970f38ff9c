#include "analysis/tensor/ratio_course.h"

#include <algorithm>

namespace plumbline::analysis {
namespace {

constexpr uint64_t kFewInside = 8;
constexpr uint64_t kFewZero = 3;
constexpr uint64_t kNewestInside = 16;
constexpr uint64_t kSlow = 256;
// If noise alone puts points inside, they are the higher ones.
constexpr double kDecadesOfDoubt = 0.3;
constexpr double kFar = 2;  // decades below the limit

// Updates a mean in which the newest points have the largest weight.
void AddToMean(double x, uint64_t& count, double& mean, uint64_t newest = kNewestInside) {
  ++count;
  mean += (x - mean) / static_cast<double>(std::min(count, newest));
}

}  // namespace

void RateAtWork::Take(double rate) {
  if (!std::isfinite(rate) || rate < 0) return;
  newest_ = rate;
  // A rounding error in a schedule's arithmetic is not a warm-up.
  if (rate > highest_ * (1 + 1e-9)) {
    highest_ = rate;
    since_highest_ = 0;
  } else {
    ++since_highest_;
  }
}

bool OutsideRun::rising() const {
  if (points - zeros < 2 * kHalf) return false;
  double late = 0;
  for (const double x : newest) late += x;
  return (late - first_sum) / static_cast<double>(kHalf) > std::log10(1.5);
}

RatioCourse::Taken RatioCourse::Take(int64_t step, double ratio, std::optional<bool> at_work,
                                     std::optional<double> gradient, const RatioLimits& limits) {
  if (!(ratio >= 0) || std::isinf(ratio)) {
    ++non_finite_;
    return Taken::kNonFinite;
  }
  if (at_work && !*at_work) {
    ++resting_;
    return Taken::kResting;
  }
  ++counted_;
  const double log_ratio = std::log10(ratio);  // -inf if nothing changed
  highest_ = std::max(highest_, log_ratio);
  std::optional<double> log_gradient;
  if (gradient && std::isfinite(*gradient) && *gradient > 0) log_gradient = std::log10(*gradient);
  const int side = log_ratio < limits.low ? -1 : log_ratio > limits.high ? 1 : 0;
  if (side == 0) {
    Inside(log_ratio, log_gradient);
    return Taken::kCounted;
  }
  Add(step, side, log_ratio, log_gradient);
  if (gradient && *gradient == 0) ++run_.no_gradient;
  if (!at_work) ++run_unrated_;
  return Taken::kCounted;
}

void RatioCourse::Inside(double log_ratio, std::optional<double> log_gradient) {
  AddToMean(log_ratio, inside_, inside_mean_);
  if (log_gradient) AddToMean(*log_gradient, inside_gradients_, inside_gradient_mean_);
  // Averaged over as many points as noise may last.
  uint64_t squares = inside_slow_;
  AddToMean(log_ratio, inside_slow_, inside_slow_mean_, kSlow);
  const double off = log_ratio - inside_slow_mean_;
  AddToMean(off * off, squares, inside_squares_, kSlow);
  run_ = OutsideRun();
  run_unrated_ = 0;
}

void RatioCourse::Add(int64_t step, int side, double log_ratio,
                      std::optional<double> log_gradient) {
  if (run_.side != side) {
    run_ = OutsideRun();
    run_.side = side;
    run_.first = step;
    run_unrated_ = 0;
  }
  ++run_.points;
  run_.last = step;
  if (log_gradient) {
    run_.gradient_sum += *log_gradient;
    ++run_.gradients;
  }
  if (std::isinf(log_ratio)) {
    ++run_.zeros;
    return;
  }
  run_.sum += log_ratio;
  if (run_.points - run_.zeros <= OutsideRun::kHalf) run_.first_sum += log_ratio;
  run_.newest.push_back(log_ratio);
  if (run_.newest.size() > OutsideRun::kHalf) run_.newest.pop_front();
}

bool RatioCourse::Outside(const RatioLimits& limits) const {
  if (run_.side == 0) return false;
  if (run_.points >= limits.points) return true;
  const bool far =
      run_.side < 0 && rated() && run_.points == counted_ && highest_ <= limits.low - kFar;
  const uint64_t few =
      far ? std::max<uint64_t>(8, limits.points / 12) : std::max<uint64_t>(20, limits.points / 5);
  return run_.points >= few && static_cast<uint64_t>(run_.span()) >= 2 * limits.points;
}

bool RatioCourse::FellWithGradient() const {
  if (run_.side >= 0) return false;
  // Updates keep elements, and their gradient, only in some of their steps.
  if (run_.no_gradient >= kFewZero && run_.no_gradient > run_.gradients) return true;
  if (inside_gradients_ < kFewInside || run_.gradients == 0) return false;
  const double fall = inside_mean_ - run_.mean();
  const double of_gradient = GradientFall();
  return fall > 0 && of_gradient >= std::max(fall / 4, fall / 2 - kDecadesOfDoubt);
}

double RatioCourse::GradientFall() const {
  if (inside_gradients_ < kFewInside || run_.gradients == 0) return 0;
  return inside_gradient_mean_ - run_.gradient_sum / static_cast<double>(run_.gradients);
}

bool RatioCourse::Hovers() const {
  if (run_.side == 0 || inside_ < kFewInside || run_.zeros > 0) return false;
  const double way = run_.side * (run_.mean() - inside_mean_);
  const double of_gradient = std::max(0.0, -run_.side * GradientFall());
  return way - of_gradient <= kDecadesOfDoubt + 2 * std::sqrt(inside_squares_);
}

bool RatioCourse::MayBeSchedule() const {
  if (run_.side >= 0) return false;
  // As for the rate: if the ratio is below a tenth of its maximum, it may be a decay.
  return run_.rising() || !(run_.mean() >= highest_ - 1);
}

}  // namespace plumbline::analysis
