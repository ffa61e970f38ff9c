// Finds changes of drift over the steps of a run: one jump, or growth. Pure functions of the
// series; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "analysis/drift/series.h"

namespace plumbline::analysis {

// One upward jump in the log of the mean square, compared with the best straight line.
struct StepChange {
  static constexpr size_t kFewestAside = 8;

  bool judged = false;  // at least 8 steps with drift on each side
  bool found = false;   // all three conditions hold, with 8 steps on each side of the jump
  // True if all three conditions hold, but with fewer than 8 steps on one side, so that more steps
  // are needed.
  bool at_edge = false;
  // True if all three conditions hold, but at least half of the jump vanishes if each step's mean
  // square is divided by that of tokens with the same log mu. Then other tokens were drawn, as from
  // another task.
  bool other_tokens = false;
  int64_t step = 0;  // the first step after the jump
  // Range of steps whose likelihood is at least a twentieth of the best.
  int64_t step_low = 0, step_high = 0;
  int64_t version = 0;  // the trainer's version at `step`
  double jump = 0;      // size of the jump of log mean d^2
  double standard_error = 0;
  double residual_share = 0;  // residual squares of the jump, divided by those of the line
  size_t steps = 0;
};

// Computes residual squares by prefix sums about the series' mean. A mean square of 0 has no
// logarithm. If a series has such steps, half the smallest other mean square is used for them. All
// splits are tested. found: jump >= ln 2 and >= 6 standard errors, residual_share <= 1/2, and at
// least 8 steps on each side.
StepChange FindStepChange(std::span<const DriftPoint> points);

// Growth that starts again with every restart: a line in the steps since the last restart, compared
// with a line in the steps. Restarts are the run's recorded attempts. If there is only one attempt
// (an engine restarts without the trainer, or text records hold no attempts), restarts are sudden
// falls, at least two. A sudden fall exceeds 4 deviations of the steps' differences and half of the
// largest fall.
struct Sawtooth {
  static constexpr size_t kFewestBetween = 4;  // steps with drift per attempt

  bool judged = false;  // at least 2 such attempts and 16 steps in all
  bool by_attempts = false;
  bool found = false;  // all conditions hold
  size_t restarts = 0;
  double slope = 0;  // slope of log mean d^2, per step
  double standard_error = 0;
  // Residual squares of this line, divided by those of the line in steps.
  double residual_share = 0;
  double smallest_fall = 0;  // smallest fall of the log, from the last 4 steps before a restart to
                             // the first 4 after it
};

// found: slope >= 6 standard errors, residual_share <= 1/2 (1/5 if the restarts are not recorded),
// and every restart is a fall.
Sawtooth FindSawtooth(std::span<const DriftPoint> points);

// An e-detector in Shiryaev-Roberts form: R_t = (R_{t-1} + 1) e_t, alarm at R >= A, with E[e_t |
// past] <= 1 as long as nothing grows. R_t - t is then a supermartingale. So the mean number of
// steps to a false alarm is at least A (Shin, Ramdas and Rinaldo, 2022).
struct Growth {
  bool alarmed = false;
  int64_t alarm_step = 0;
  // The step in which the statistic that raised the alarm last started from zero.
  int64_t since_step = 0;
  double log_largest = 0;  // ln of the largest R
  size_t steps = 0;
  // Mean of min(d^2, 1/4) before since_step, and from it to the alarm.
  double before = 0, after = 0;
};

// Tests against declared ceilings of the two bounded rates (of |d| > ln 2; of min(d^2, 1/4)). If a
// ceiling is not positive, it is ignored. e_t is the mean over the watched rates and b = 2^-1 ..
// 2^-5 of SR statistics with e = 1 + b (x / ceiling - 1). These are non-negative, with mean at most
// 1 if E[x | past] is at most the ceiling.
Growth WatchCeiling(std::span<const DriftPoint> points, double tail_ceiling, double square_ceiling,
                    double run_length);

// Tests without a ceiling. Each step's rank among its past, with ties broken at random (by a hash
// of `salt` and the step), is uniform on {1..t}/t and independent of the past if steps are
// exchangeable. p is that rank from above, less a uniform share of 1/t. e is the mean over k = 1/2,
// 1/4, 1/8 of k p^(k-1).
Growth WatchRanks(std::span<const DriftPoint> points, std::string_view salt, double run_length);

// Returns 1.25 (mean + 3 standard errors) over the steps of a calibration run: ceilings that
// another run may declare. Returns NaN if there are fewer than 10 steps.
struct Ceilings {
  double tail = 0, square = 0;
};
Ceilings Calibrate(std::span<const DriftPoint> points);

}  // namespace plumbline::analysis
