// Drift over the steps of a run: one jump, or growth. Pure functions of the series, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "analysis/drift/series.h"

namespace plumbline::rules {

// One upward jump in the log of the mean square, against the best straight line.
struct StepChange {
  static constexpr size_t kFewestAside = 8;

  bool judged = false;   // at least 8 steps with drift on each side
  bool found = false;    // all three conditions, and 8 steps on each side of the jump
  bool at_edge = false;  // all three, and fewer than 8 steps before or after it: more must come
  int64_t step = 0;      // the first one after the jump
  int64_t step_low = 0, step_high = 0;  // the steps that are a twentieth as likely, or more
  int64_t version = 0;                  // the trainer's there
  double jump = 0;                      // of log mean d^2
  double standard_error = 0;
  double residual_share = 0;  // squares that the jump leaves over those that the line leaves
  size_t steps = 0;
};

// Residual squares by prefix sums about the series' mean. Steps whose mean square is 0 have no
// logarithm: of a series that has any, half the smallest other mean square stands for them. All
// splits compete. found: jump >= ln 2 and >= 6 standard errors, residual_share <= 1/2, and at least
// 8 steps on each side.
StepChange FindStepChange(std::span<const DriftPoint> points);

// Growth that begins anew with every restart: a line in the steps since the last one, against a
// line in the steps. Restarts are the run's recorded attempts; where it has one alone (an engine
// restarts without the trainer, and text records know no attempts) they are sudden falls, at least
// two: beyond 4 deviations of the steps' differences and half of the largest.
struct Sawtooth {
  static constexpr size_t kFewestBetween = 4;  // steps with drift of an attempt

  bool judged = false;  // at least 2 such attempts, 16 steps in all
  bool by_attempts = false;
  bool found = false;  // all conditions
  size_t restarts = 0;
  double slope = 0;  // of log mean d^2, a step
  double standard_error = 0;
  double residual_share = 0;  // squares that it leaves over those that the line in steps leaves
  double smallest_fall = 0;   // of the log, from the last 4 steps before a restart to the first 4
};

// found: slope >= 6 standard errors, residual_share <= 1/2 (1/5 where the restarts are not
// recorded), every restart a fall.
Sawtooth FindSawtooth(std::span<const DriftPoint> points);

// What a site's steps show: over the tokens labelled lag 0, and over those of the commonest lag.
struct StepPatterns {
  StepChange jump;
  Sawtooth sawtooth;
};

// An e-detector in Shiryaev-Roberts form: R_t = (R_{t-1} + 1) e_t, alarm at R >= A, with E[e_t |
// past] <= 1 while nothing grows. R_t - t is then a supermartingale, so that the mean number of
// steps to a false alarm is at least A (Shin, Ramdas and Rinaldo, 2022).
struct Growth {
  bool alarmed = false;
  int64_t alarm_step = 0;
  int64_t since_step = 0;  // where the statistic that alarmed last began from nothing
  double log_largest = 0;  // ln of the largest R
  size_t steps = 0;
  double before = 0, after = 0;  // mean of min(d^2, 1/4) up to since_step, and from it to the alarm
};

// Against declared ceilings of the two bounded rates (of |d| > ln 2; of min(d^2, 1/4)). A ceiling
// that is not positive is not watched. e_t is the mean over the watched rates and b = 2^-1 .. 2^-5
// of SR statistics with e = 1 + b (x / ceiling - 1): non-negative, mean at most 1 where E[x | past]
// is at most the ceiling.
Growth WatchCeiling(std::span<const DriftPoint> points, double tail_ceiling, double square_ceiling,
                    double run_length);

// Without a ceiling: each step's rank among its past, ties broken at random (by a hash of `salt`
// and the step), is uniform on {1..t}/t and independent of the past for exchangeable steps. p is
// that rank from above less a uniform share of 1/t; e = the mean over k = 1/2, 1/4, 1/8 of k
// p^(k-1).
Growth WatchRanks(std::span<const DriftPoint> points, std::string_view salt, double run_length);

// 1.25 (mean + 3 standard errors) over the steps of a calibration run: what another run may declare
// as its ceilings. NaN with fewer than 10 steps.
struct Ceilings {
  double tail = 0, square = 0;
};
Ceilings Calibrate(std::span<const DriftPoint> points);

}  // namespace plumbline::rules
