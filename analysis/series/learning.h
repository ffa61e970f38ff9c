// Does a loss learn at all? It does not if it stays, within its noise, where it began: no fall is
// seen, and none that noise could hide is large.
#pragma once

#include <cstdint>
#include <span>

#include "analysis/series/block_medians.h"

namespace plumbline::rules {

struct LearningFigures {
  bool known = false;     // from kFewestForLearning points on
  bool flat = false;      // it stays where it began, and noise hides no fall of kHidden or more
  bool constant = false;  // ... of under kFewestForLearning points: all have one value
  bool noisy = false;     // noise could hide such a fall, and none is seen: nothing is known
  bool hidden = false;    // ... and all else is flat
  uint64_t points = 0;
  double level = 0;      // median of all, ln value
  double fall = 0;       // of the median, from its first third to its last one, in ln
  double most = 0;       // upper end of that fall's interval
  double sigma = 0;      // of a point
  uint32_t classes = 0;  // the level is ln of this small whole number; 0: of none
};

inline constexpr uint64_t kFewestForLearning = 60;
// Points that all have one value, of kConstantDigits digits at least: no noise could hide a fall.
inline constexpr uint64_t kFewestConstant = 10;
inline constexpr int kConstantDigits = 4;

// From 8 points on: does the last third lie below the first beyond noise?
struct FallFigures {
  bool known = false;
  bool falls = false;  // by 2 % and 4 standard errors
};
FallFigures LookForFall(const BlockMedians& all, uint64_t points);

// `first`: ln values of the first points, at most 16. `all`: of all of them.
LearningFigures LookForLearning(std::span<const double> first, const BlockMedians& all,
                                uint64_t points);

}  // namespace plumbline::rules
