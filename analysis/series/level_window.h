// Keeps the newest points of a series' history. Computes the level, slope and scale with which the
// next point is compared.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "analysis/series/growing_ring.h"
#include "analysis/series/robust.h"
#include "base/archive.h"

namespace plumbline::analysis {

// The reference with which a point is compared.
struct Frame {
  double level = 0;     // m: median of the newest max(8, w/4) points
  double slope = 0;     // b, slope per point
  double scale = 0;     // s, the scale
  uint64_t window = 0;  // w, the points in the window
  // For linear series: true if the values scatter around their median, and most are not equal to
  // it.
  bool scatters = false;
  void Persist(Archive& a) { a(level, slope, scale, window, scatters); }
};

class LevelWindow {
 public:
  static constexpr uint64_t kFewest = 16;  // points needed for a frame
  static constexpr uint64_t kWidest = 128;
  // Number of points that Pop may remove, plus a window before these.
  static constexpr uint64_t kRing = 512;

  explicit LevelWindow(bool linear = false) : linear_(linear) {}

  void Push(int64_t step, double y);
  // Removes the newest points until `count` are left.
  void PopTo(uint64_t count);
  void Restart() { PopTo(0); }
  uint64_t count() const { return count_; }
  double y(uint64_t i) const { return y_[i % kRing]; }
  int64_t step(uint64_t i) const { return step_[i % kRing]; }

  // Returns the level of the history so far. Needs kFewest points.
  double Level();
  // Returns the smallest scale that is used.
  double Floor(double level) const { return linear_ ? 0.005 * std::fabs(level) : 0.005; }
  // Returns true if y is at least 6 scales above the level. For most points this costs a few
  // comparisons: the frame is computed only if a lower bound of the scale does not already exclude
  // it.
  bool Far(double y, double level, Frame* frame);
  // Returns the frame of the first i points of the history.
  Frame FrameAt(uint64_t i) const;
  static uint64_t WindowOf(uint64_t count);

  // From now on uses values instead of ln values. Converts the stored points.
  void GoLinear();
  bool linear() const { return linear_; }

  // Not stored, but recomputed: steady_at_ with newest_, halves_at_ with first_half_ and
  // second_half_, bound_at_ with bound_slope_ and half_lengths_.
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

  // From 256 points on, the window moves by one point at a time, so the values are kept sorted.
  // Each _at_ member is the number of points for which its windows are valid; 0 if they are
  // invalid.
  uint64_t steady_at_ = 0;
  SortedWindow newest_;  // the newest 32 points
  uint64_t halves_at_ = 0;
  SortedWindow first_half_, second_half_;  // 64 points each
  // Half the length of the narrowest intervals that hold 64, 56, 48 and 40 of the window's
  // residuals.
  static constexpr uint64_t kBounds = 4, kBoundStep = 8;
  uint64_t bound_at_ = 0;
  double bound_slope_ = 0;
  std::array<double, kBounds> half_lengths_{};
};

}  // namespace plumbline::analysis
