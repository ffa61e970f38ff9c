// What a series did when it left its level, and when its level rose: words that the rules on losses
// and on gradient norms share.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/archive.h"

namespace plumbline::rules {

enum class ExcursionKind : uint8_t {
  kSpike,       // away still when seen last; or back after more than 128 points
  kRecovered,   // back within 128 points; of a divergence: back at last
  kLevelShift,  // a new level
  kDivergence,  // it grows, or lies a third above
};
const char* NameOf(ExcursionKind kind);  // as the contract has it: "level-shift"

// A share of the level in the domain of a series: ln(1 + share); of values themselves share * max(
// |level|, 60 scales).
double PartOf(double share, double level, double scale, bool linear);
// And back: 0.1 is ten percent.
double ShareOf(double part, double level, double scale, bool linear);

// A restart of the learning rate by its schedule (RateWatch): the step in which it began to stand
// higher, and from where to where it rose.
struct ScheduleRestart {
  int64_t step = 0;
  double from = 0, to = 0;
  void Persist(Archive& a) { a(step, from, to); }
};

// Levels and excesses are in ln value, or in values themselves once one was <= 0 (`linear`).
struct Excursion {
  int64_t onset_step = 0;   // of its first point
  int64_t opened_step = 0;  // of the point with which it was known
  int64_t last_step = 0;    // of its newest point with z >= 3
  int64_t peak_step = 0;
  uint64_t points = 0;       // from the onset to the newest one with z >= 3
  uint64_t above = 0;        // of these: with z >= 3
  uint64_t window = 0;       // points that it was compared with
  double level = 0;          // m, frozen
  double scale = 0;          // s, frozen
  double slope = 0;          // b, frozen
  double peak = 0;           // largest excess over the level expected
  double peak_value = 0;     // the value there
  double sudden = 0;         // largest excess over what a slow rise would have come to by then
  double before = 0;         // highest y - m of the 512 points before the onset; -inf: none
  uint64_t compared = 0;     // of these points: those with a known level
  double first_quarter = 0;  // median excess, where the kind rests on it; else 0
  double last_quarter = 0;
  ExcursionKind kind = ExcursionKind::kSpike;
  bool linear = false;
  bool jumped = false;       // most of the way at once, in the point that opened it
  bool lasting = false;      // not short: more than 3 of its points, and more than half, at z >= 3
  bool outstanding = false;  // its peak is 2.5 times what was seen before, or more
  bool restart = false;      // began within 128 points of a restart of the rate
  bool third = false;        // its peak is a third of the level, or more
  bool ended = false;        // the data ended, or a resume began, before it was back
  bool scatters = false;     // Frame::scatters
  bool scheduled = false;    // began as the rate's schedule restarted
  bool overstayed = false;   // ... and the loss was away when the rate was back where it had been
  ScheduleRestart cause;     // that restart

  // A warning; else a note. A level around 0, which may be 0 for most of the time, says little, and
  // a scale about it neither: there only what lasts counts, and rises above all that was seen
  // before. Where too little was seen to know that, it must be a jump, too, and too far out for any
  // noise, of which it is known that it is noise: what begins at 0 and grows, as the loss of a
  // policy does, may get as far.
  bool warns() const {
    if (by_schedule()) return false;
    if (restart && !third) return false;
    if (around_zero())
      return lasting && above_before() && (compared >= kEnoughBefore || far_jump());
    return lasting || outstanding;
  }
  // What a restart of the rate does, as far as anybody can tell yet.
  bool by_schedule() const { return scheduled && !overstayed; }
  // The level is no measure of anything.
  bool around_zero() const { return linear && !(std::fabs(level) >= kMeans * scale); }
  bool far_jump() const { return jumped && scatters && seen_enough(); }
  bool above_before() const { return peak >= kAboveBefore * before; }
  // Enough was seen before to know the noise by, or it is too far out for any.
  bool seen_enough() const { return compared >= kEnoughBefore || peak >= kFarOut * scale; }
  // A jump of a series that rises slowly when all is well, as norms do while a model begins to
  // learn: to twice the level, beside whatever a slow rise had come to by then.
  bool doubled() const {
    return warns() && seen_enough() && above_before() && sudden >= PartOf(1, level, scale, linear);
  }
  static constexpr uint64_t kEnoughBefore = 128;  // points
  static constexpr double kFarOut = 16;           // scales
  static constexpr double kAboveBefore = 1.5;     // times
  static constexpr double kMeans = 60;            // scales
  double peak_z() const { return peak / scale; }
  // It went on growing after it had opened.
  bool grew() const { return last_quarter > 1.5 * first_quarter && last_quarter > 0; }
  double peak_share() const { return ShareOf(peak, level, scale, linear); }
  // A level or an excess over it as a value.
  double value(double y) const;

  void Persist(Archive& a) {
    a(onset_step, opened_step, last_step, peak_step, points, above, window, level, scale, slope,
      peak, peak_value, sudden, before, compared, first_quarter, last_quarter, kind, linear, jumped,
      lasting, outstanding, restart, third, ended, scatters, scheduled, overstayed, cause);
  }
};

// A rise that is no excursion: the newest block of points stands above the best one before.
struct Rise {
  int64_t onset_step = 0;
  int64_t step = 0;         // at which it was found
  double best = 0;          // median of the best block
  double level = 0;         // of the newest one
  double sigma = 0;         // of a point
  double slope_low = 0;     // lower end of the 99 % interval, a point
  uint64_t block = 0;       // points of the newest block
  uint64_t best_block = 0;  // of the best one
  uint64_t since = 0;       // points since that
  bool third = false;       // a third above, or more: it was told of a tenth before
  bool linear = false;

  double share() const { return ShareOf(level - best, best, sigma, linear); }
  double value(double y) const;
};

struct SeriesEvent {
  enum class What : uint8_t {
    kOpened,    // `excursion`, of kind spike so far
    kGrew,      // it warns now
    kDoubled,   // it doubled() now, and had not when it opened
    kSettled,   // its kind is known
    kReturned,  // a divergence is back: kind recovered now
    kRise,      // `rise`; again once it is a third
    kFell,      // `rise` is over: half of a tenth is left
  };
  What what = What::kOpened;
  Excursion excursion;
  Rise rise;

  bool of_rise() const { return what == What::kRise || what == What::kFell; }
};

}  // namespace plumbline::rules
