// The newest points of a series' history, and the level, slope and scale that the next point is
// compared with.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "analysis/series/growing_ring.h"
#include "analysis/series/robust.h"
#include "base/archive.h"

namespace plumbline::rules {

// What a point is compared with.
struct Frame {
  double level = 0;     // m: median of the newest max(8, w/4) points
  double slope = 0;     // b, a point
  double scale = 0;     // s
  uint64_t window = 0;  // w
  // Of values themselves: they lie about their middle as noise does, and not most of them on it.
  bool scatters = false;
  void Persist(Archive& a) { a(level, slope, scale, window, scatters); }
};

class LevelWindow {
 public:
  static constexpr uint64_t kFewest = 16;  // points, for a frame
  static constexpr uint64_t kWidest = 128;
  static constexpr uint64_t kRing = 512;  // what Pop may reach back to, and a window before it

  explicit LevelWindow(bool linear = false) : linear_(linear) {}

  void Push(int64_t step, double y);
  // The newest points go, down to `count` of them.
  void PopTo(uint64_t count);
  void Restart() { PopTo(0); }
  uint64_t count() const { return count_; }
  double y(uint64_t i) const { return y_[i % kRing]; }
  int64_t step(uint64_t i) const { return step_[i % kRing]; }

  // Of the history so far; kFewest points at least.
  double Level();
  // No scale is smaller.
  double Floor(double level) const { return linear_ ? 0.005 * std::fabs(level) : 0.005; }
  // Is y at least 6 scales above the level? Most points cost a few comparisons: the frame is made
  // only where a bound that always holds does not say no.
  bool Far(double y, double level, Frame* frame);
  // Of the history up to point i, i.e. of the first i points.
  Frame FrameAt(uint64_t i) const;
  static uint64_t WindowOf(uint64_t count);

  // From now on values themselves: what was kept becomes so.
  void GoLinear();
  bool linear() const { return linear_; }

  // steady_at_ with newest_, halves_at_ with first_half_ and second_half_, and bound_at_ with
  // bound_slope_ and half_lengths_ are found again.
  void Persist(Archive& a) {
    a(linear_, count_, y_, step_);
    if (a.reading()) steady_at_ = halves_at_ = bound_at_ = 0;
  }

 private:
  static uint64_t LevelPoints(uint64_t window) { return window / 4 < 8 ? 8 : window / 4; }
  double MedianOfNewest(uint64_t end, uint64_t points) const;
  double ScaleOf(uint64_t end, uint64_t window, double slope, double level) const;
  double SteadySlope();
  double LeastScale(double slope) const;
  void KeepBound(double slope);

  bool linear_;
  uint64_t count_ = 0;
  GrowingRing<double, kRing> y_;
  GrowingRing<int64_t, kRing> step_;

  // From 256 points on the window moves by one: medians are kept in order. Each is true of the
  // first so many points (0: of none).
  uint64_t steady_at_ = 0;
  SortedWindow newest_;  // 32 points
  uint64_t halves_at_ = 0;
  SortedWindow first_half_, second_half_;  // 64 points each
  // How narrow an interval holds 64, 56, 48, 40 of the window's residuals, half of it.
  static constexpr uint64_t kBounds = 4, kBoundStep = 8;
  uint64_t bound_at_ = 0;
  double bound_slope_ = 0;
  std::array<double, kBounds> half_lengths_{};
};

}  // namespace plumbline::rules
