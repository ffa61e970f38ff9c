// The results of a series' judgement: excursions from its level and rises of its level. Shared by
// the rules on losses and on gradient norms.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/archive.h"

namespace plumbline::analysis {

enum class ExcursionKind : uint8_t {
  kSpike,       // still away at the end, or back after more than 128 points
  kRecovered,   // back within 128 points (a divergence: back at any time)
  kLevelShift,  // the series stays at a new level
  kDivergence,  // the excursion grows, or stays a third above the level
};
const char* NameOf(ExcursionKind kind);  // the name in the contract, such as "level-shift"

// Returns a share of the level as a difference in the domain of the series: ln(1 + share). If the
// series is linear, returns share * max(|level|, 60 scales).
double PartOf(double share, double level, double scale, bool linear);
// Inverse of PartOf: returns a share, where 0.1 is ten percent.
double ShareOf(double part, double level, double scale, bool linear);

// A restart of the learning rate by its schedule (RateWatch): the step in which the rate rose, the
// rate before, and the rate after.
struct ScheduleRestart {
  int64_t step = 0;
  double from = 0, to = 0;
  void Persist(Archive& a) { a(step, from, to); }
};

// An excursion. Levels and excesses are in ln value, or in values if a value <= 0 occurred
// (`linear`).
struct Excursion {
  int64_t onset_step = 0;   // step of its first point
  int64_t opened_step = 0;  // step of the point that opened it
  int64_t last_step = 0;    // step of its newest point with z >= 3
  int64_t peak_step = 0;
  uint64_t points = 0;    // number of points from the onset to the newest point with z >= 3
  uint64_t above = 0;     // number of these points with z >= 3
  uint64_t window = 0;    // number of points of the window with which it was compared
  double level = 0;       // m at the onset, which then stays fixed
  double scale = 0;       // s at the onset, fixed
  double slope = 0;       // b at the onset, fixed
  double peak = 0;        // largest excess over the expected level
  double peak_value = 0;  // value at the peak
  // Largest excess over the value that a slow rise would have reached by then.
  double sudden = 0;
  double before = 0;      // highest y - m of the 512 points before the onset; -inf if there is none
  uint64_t compared = 0;  // number of these points with a known level
  // Median excess of the first quarter, if the kind depends on it; else 0.
  double first_quarter = 0;
  double last_quarter = 0;
  ExcursionKind kind = ExcursionKind::kSpike;
  bool linear = false;
  bool jumped = false;       // most of the excess came in one step, at the point that opened it
  bool lasting = false;      // more than 3 of its points, and more than half of them, have z >= 3
  bool outstanding = false;  // its peak is at least 2.5 times the excess seen before
  bool restart = false;      // began within 128 points of a restart of the rate
  bool third = false;        // its peak is at least a third of the level
  bool ended = false;        // the data ended, or a resume began, before the series came back
  bool scatters = false;     // copy of Frame::scatters
  bool scheduled = false;    // it began when the schedule of the learning rate restarted
  bool overstayed = false;   // scheduled, and the loss was still away when the rate was back
  ScheduleRestart cause;     // the restart, if scheduled

  // Returns true for a warning, false for a note. A level around 0, which may be exactly 0 most of
  // the time, is a poor reference, and so is its scale. Then only excursions count that last and
  // exceed all earlier ones. If there were too few earlier points, the excursion must also be a
  // jump, exceed any noise, and the values must be known to scatter. Without these conditions, a
  // series that begins at 0 and grows, such as a policy's loss, would also count.
  bool warns() const {
    if (by_schedule()) return false;
    if (restart && !third) return false;
    if (around_zero())
      return lasting && above_before() && (compared >= kEnoughBefore || far_jump());
    return lasting || outstanding;
  }
  // True if, as far as known, a restart of the rate explains the excursion.
  bool by_schedule() const { return scheduled && !overstayed; }
  // True if the level is too close to 0 to be a reference.
  bool around_zero() const { return linear && !(std::fabs(level) >= kMeans * scale); }
  bool far_jump() const { return jumped && scatters && seen_enough(); }
  bool above_before() const { return peak >= kAboveBefore * before; }
  // True if there were enough earlier points to know the noise, or if the peak exceeds any noise.
  bool seen_enough() const { return compared >= kEnoughBefore || peak >= kFarOut * scale; }
  // True for a jump to twice the level, in addition to the value that a slow rise would have
  // reached. Used for series that rise slowly in healthy runs, as gradient norms do when a model
  // begins to learn.
  bool doubled() const {
    return warns() && seen_enough() && above_before() && sudden >= PartOf(1, level, scale, linear);
  }
  static constexpr uint64_t kEnoughBefore = 128;  // points
  static constexpr double kFarOut = 16;           // scales
  static constexpr double kAboveBefore = 1.5;     // times
  static constexpr double kMeans = 60;            // scales
  double peak_z() const { return peak / scale; }
  // True if it grew after it had opened.
  bool grew() const { return last_quarter > 1.5 * first_quarter && last_quarter > 0; }
  double peak_share() const { return ShareOf(peak, level, scale, linear); }
  // Converts a level, or an excess over it, to a value.
  double value(double y) const;

  void Persist(Archive& a) {
    a(onset_step, opened_step, last_step, peak_step, points, above, window, level, scale, slope,
      peak, peak_value, sudden, before, compared, first_quarter, last_quarter, kind, linear, jumped,
      lasting, outstanding, restart, third, ended, scatters, scheduled, overstayed, cause);
  }
};

// A rise that is not an excursion: the newest block of points is above the best earlier block.
struct Rise {
  int64_t onset_step = 0;
  int64_t step = 0;         // step at which it was found
  double best = 0;          // median of the best block
  double level = 0;         // median of the newest block
  double sigma = 0;         // standard deviation of a point
  double slope_low = 0;     // lower end of the 99 % interval, per point
  uint64_t block = 0;       // points of the newest block
  uint64_t best_block = 0;  // points of the best block
  uint64_t since = 0;       // points since the best block
  bool third = false;       // the level is at least a third above; a tenth was reported before
  bool linear = false;

  double share() const { return ShareOf(level - best, best, sigma, linear); }
  double value(double y) const;
};

struct SeriesEvent {
  enum class What : uint8_t {
    kOpened,    // `excursion` has opened; its kind is kSpike so far
    kGrew,      // the excursion now is a warning
    kDoubled,   // doubled() is true now, and was false when it opened
    kSettled,   // its kind is final
    kReturned,  // a divergence came back; its kind is now kRecovered
    kRise,      // `rise` was found; sent again if it reaches a third
    kFell,      // `rise` is over: the level is less than half a tenth above the best
  };
  What what = What::kOpened;
  Excursion excursion;
  Rise rise;

  bool of_rise() const { return what == What::kRise || what == What::kFell; }
};

}  // namespace plumbline::analysis
