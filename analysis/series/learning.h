// Detects a loss that does not learn: it stays where it began within its noise. No fall is seen,
// and the noise is too small to hide a large one.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "analysis/series/block_medians.h"

namespace plumbline::analysis {

struct LearningFigures {
  bool known = false;     // true from kFewestForLearning points on
  bool flat = false;      // stays where it began, and noise cannot hide a large fall
  bool constant = false;  // ... with fewer than kFewestForLearning points that all have one value
  bool noisy = false;     // noise could hide such a fall and none is seen, so nothing is known
  bool hidden = false;    // ... and all other conditions of `flat` hold
  uint64_t points = 0;
  double level = 0;      // median of all points, ln value
  double fall = 0;       // ln difference of the medians of the first and the last third
  double most = 0;       // upper end of the interval of `fall`
  double sigma = 0;      // standard deviation of a point
  uint32_t classes = 0;  // the level is ln of this small integer; 0 if there is none
};

inline constexpr uint64_t kFewestForLearning = 60;
// If all points have one value of at least kConstantDigits digits, no noise could hide a fall.
inline constexpr uint64_t kFewestConstant = 10;
inline constexpr int kConstantDigits = 4;

// Returns the number of significant digits of a value as a log prints it.
int SignificantDigits(double value);

// Whether the last third lies below the first, beyond noise. Needs 8 points.
struct FallFigures {
  bool known = false;
  bool falls = false;  // by 2 % and by 4 standard errors
  bool stays = false;  // ... and the newest blocks are not above the last third
};
FallFigures LookForFall(const BlockMedians& all, uint64_t points);

// `first` has the ln values of the first points, at most 16. `all` has the block medians of all
// points.
LearningFigures LookForLearning(std::span<const double> first, const BlockMedians& all,
                                uint64_t points);

// A series that repeats itself digit for digit: nothing was updated between its epochs.
struct RepeatFigures {
  bool repeats = false;
  uint64_t period = 0;  // points
  uint64_t points = 0;
};

// `all` has the steps and values of the series. At least 10 values must equal those a period before
// them, of at least 3 different ones.
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
