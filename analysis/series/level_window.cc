#include "analysis/series/level_window.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace plumbline::analysis {
namespace {

constexpr uint64_t kHalf = LevelWindow::kWidest / 2;
constexpr uint64_t kNewest = LevelWindow::kWidest / 4;

double Corrected(double deviation, uint64_t window) {
  const auto w = static_cast<double>(window);
  return deviation * (w / (w - 4));
}

// Returns the spread of values of which most may be equal, as in a hinge loss that is mostly 0. The
// median distance from the median would then be 0. So returns the root mean square distance from
// the median, without the three farthest values, which may be the excursion.
double SpreadOf(std::span<double> values) {
  constexpr size_t kFarthest = 3;
  const double middle = MedianOf(values);
  for (double& value : values) value = (value - middle) * (value - middle);
  const size_t kept = values.size() - kFarthest;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(kept), values.end());
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) sum += values[i];
  return std::sqrt(sum / static_cast<double>(kept));
}

}  // namespace

// The result is even, so that the window has two halves.
uint64_t LevelWindow::WindowOf(uint64_t count) {
  return std::min(kWidest, std::max(kFewest, count / 2)) & ~uint64_t{1};
}

void LevelWindow::Push(int64_t step, double y) {
  if (steady_at_ != 0 && steady_at_ == count_) {
    newest_.Replace(this->y(count_ - kNewest), y);
    ++steady_at_;
  }
  y_[count_ % kRing] = y;
  step_[count_ % kRing] = step;
  ++count_;
}

void LevelWindow::PopTo(uint64_t count) {
  count_ = count;
  steady_at_ = halves_at_ = bound_at_ = 0;
}

void LevelWindow::GoLinear() {
  linear_ = true;
  // Converts only the written places, because the content of the others depends on the ring's size.
  for (uint64_t i = 0; i < std::min(count_, kRing); ++i) y_[i] = std::exp(y_[i]);
  PopTo(count_);
}

double LevelWindow::MedianOfNewest(uint64_t end, uint64_t points) const {
  std::array<double, kWidest> values;
  for (uint64_t i = 0; i < points; ++i) values[i] = y(end - points + i);
  return MedianOf({values.data(), points});
}

double LevelWindow::Level() {
  if (count_ < 2 * kWidest) return MedianOfNewest(count_, LevelPoints(WindowOf(count_)));
  if (steady_at_ != count_) {
    newest_.Clear();
    for (uint64_t i = count_ - kNewest; i < count_; ++i) newest_.Insert(y(i));
    steady_at_ = count_;
  }
  return newest_.median();
}

// Computes everything except the smallest gap between values, which can only increase the result.
double LevelWindow::ScaleOf(uint64_t end, uint64_t window, double slope, double level) const {
  std::array<double, kWidest> rest;
  for (uint64_t i = 0; i < window; ++i)
    rest[i] = y(end - window + i) - slope * static_cast<double>(i);
  return std::max(Corrected(DeviationOf({rest.data(), window}), window), Floor(level));
}

Frame LevelWindow::FrameAt(uint64_t i) const {
  const uint64_t window = WindowOf(i), half = window / 2;
  Frame frame;
  frame.window = window;
  frame.level = MedianOfNewest(i, LevelPoints(window));
  frame.slope =
      (MedianOfNewest(i, half) - MedianOfNewest(i - half, half)) / static_cast<double>(half);
  std::array<double, kWidest> values;
  for (uint64_t k = 0; k < window; ++k) values[k] = y(i - window + k);
  const double deviation = ScaleOf(i, window, frame.slope, frame.level);
  frame.scale = std::max(deviation, SmallestGap({values.data(), window}));
  if (!linear_) return frame;
  for (uint64_t k = 0; k < window; ++k)
    values[k] = y(i - window + k) - frame.slope * static_cast<double>(k);
  constexpr double kAsNoise = 1.5;
  const double spread = SpreadOf({values.data(), window});
  frame.scale = std::max(frame.scale, spread);
  frame.scatters = spread <= kAsNoise * deviation;
  return frame;
}

bool LevelWindow::Far(double y, double level, Frame* frame) {
  const double above = y - level;
  // If the level is 0 and all values are 0, there is no scale.
  if (!(above >= 6 * Floor(level)) || !(above > 0)) return false;
  if (count_ < 2 * kWidest) {
    *frame = FrameAt(count_);
    return frame->scale > 0 && above >= 6 * frame->scale;
  }
  const double slope = SteadySlope();
  if (bound_at_ != 0 && !(above >= 6 * LeastScale(slope))) return false;
  KeepBound(slope);
  if (!(above >= 6 * LeastScale(slope))) return false;
  if (!(above >= 6 * ScaleOf(count_, kWidest, slope, level))) return false;
  *frame = FrameAt(count_);
  return frame->scale > 0 && above >= 6 * frame->scale;
}

double LevelWindow::SteadySlope() {
  if (halves_at_ == 0 || count_ - halves_at_ > kHalf / 2) {
    first_half_.Clear();
    second_half_.Clear();
    for (uint64_t i = count_ - kWidest; i < count_ - kHalf; ++i) first_half_.Insert(y(i));
    for (uint64_t i = count_ - kHalf; i < count_; ++i) second_half_.Insert(y(i));
    halves_at_ = count_;
  }
  for (; halves_at_ < count_; ++halves_at_) {
    first_half_.Replace(y(halves_at_ - kWidest), y(halves_at_ - kHalf));
    second_half_.Replace(y(halves_at_ - kHalf), y(halves_at_));
  }
  return (second_half_.median() - first_half_.median()) / static_cast<double>(kHalf);
}

// Returns a lower bound of the window's scale, from the window k points ago. Let D be the median
// distance of the 128 residuals from their middle. At least 64 of them are within D of the middle,
// and 64 - k of these were also in the earlier window. Its slope differed by d, so there they were
// in an interval of half length D + 64 |d|. So D is at least the half length of the narrowest
// interval with 64 - k residuals of that window, minus 64 |d|.
double LevelWindow::LeastScale(double slope) const {
  const uint64_t step = (count_ - bound_at_ + kBoundStep - 1) / kBoundStep;
  if (step >= kBounds) return 0;
  const double turned = static_cast<double>(kHalf) * std::fabs(slope - bound_slope_);
  constexpr double kRounding = 1 - 1e-9;
  return Corrected(1.4826 * (half_lengths_[step] - turned), kWidest) * kRounding;
}

void LevelWindow::KeepBound(double slope) {
  std::array<double, kWidest> rest;
  for (uint64_t i = 0; i < kWidest; ++i)
    rest[i] = y(count_ - kWidest + i) - slope * static_cast<double>(i);
  std::sort(rest.begin(), rest.end());
  for (uint64_t bound = 0; bound < kBounds; ++bound) {
    const uint64_t points = kHalf - bound * kBoundStep;
    double narrowest = HUGE_VAL;
    for (uint64_t i = 0; i + points <= kWidest; ++i)
      narrowest = std::min(narrowest, rest[i + points - 1] - rest[i]);
    half_lengths_[bound] = narrowest / 2;
  }
  bound_at_ = count_;
  bound_slope_ = slope;
}

}  // namespace plumbline::analysis
