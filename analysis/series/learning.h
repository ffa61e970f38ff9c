// Detects a loss that does not learn: within its noise, it stays at its first level. There is no
// fall, and the noise is too small to hide a large one.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "analysis/series/block_medians.h"

namespace plumbline::analysis {

struct LearningFigures {
  bool known = false;  // true from kFewestForLearning points on
  bool flat = false;   // the loss stays at its first level, and noise cannot hide a large fall
  // Likewise, with fewer than kFewestForLearning points that all have the same value.
  bool constant = false;
  bool noisy = false;   // there is no fall, but noise could hide one, so nothing is known
  bool hidden = false;  // noise could hide a fall, and all other conditions of `flat` hold
  bool left = false;    // beyond noise, the last third or the newest eighth is below the level
  uint64_t points = 0;
  double level = 0;      // median of all points, ln value
  double fall = 0;       // ln difference of the medians of the first and the last third
  double most = 0;       // upper end of the interval of `fall`
  double sigma = 0;      // standard deviation of a point
  uint32_t classes = 0;  // the level is ln of this small integer; 0 if there is none
};

inline constexpr uint64_t kFewestForLearning = 60;
// Fewest points if all have the same value with at least kConstantDigits digits. Then no noise can
// hide a fall.
inline constexpr uint64_t kFewestConstant = 10;
inline constexpr int kConstantDigits = 4;

// Returns the number of significant digits of a value as a log prints it.
int SignificantDigits(double value);

// Whether the last third lies below the first, beyond noise. Needs 8 points.
struct FallFigures {
  bool known = false;
  // The last third is below the first by 2 % and by 4 standard errors. Under 24 points, instead of
  // the latter, each of its values may be a fifth below each of the first.
  bool falls = false;
  bool stays = false;  // it falls, and the newest blocks are not above the last third
};
FallFigures LookForFall(const BlockMedians& all, uint64_t points);

// `first` has the ln values of the first points, at most 16. `all` has the block medians of all
// points.
LearningFigures LookForLearning(std::span<const double> first, const BlockMedians& all,
                                uint64_t points);

// A series that repeats exactly, digit for digit: the model was not updated between its epochs.
struct RepeatFigures {
  bool repeats = false;
  uint64_t period = 0;    // period in points
  uint64_t repeated = 0;  // number of newest values that equal those one period before
  int64_t step = 0;       // of the first value that comes again
};

// `all` has the steps and values of the series. The newest 10 values or more, at least 3 of them
// different, must equal the values one period earlier. If older values do not repeat, so must the
// newest period, and the values must not be those of a series that has come to rest.
RepeatFigures LookForRepeats(std::span<const std::pair<int64_t, double>> all);

// A series with noise that stands at one value, digit for digit, from some point to its end.
struct FrozenFigures {
  bool frozen = false;
  bool rose = false;  // a value before is above the one before it: no running minimum
  double value = 0;
  int64_t step = 0;     // of the first of these points
  uint64_t points = 0;  // number of these points
  uint64_t before = 0;  // most equal values in a row before them
};

// The newest 10 values or more are equal, at least 3 times as many as ever before in a row, and
// have 4 digits of the series' resolution. The moves before them do not become smaller, as those of
// a series that converges do.
FrozenFigures LookForFrozen(std::span<const std::pair<int64_t, double>> all);

}  // namespace plumbline::analysis
