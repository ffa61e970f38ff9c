// Detects a rise from the lowest level of a short series that lasts up to its end. Compares
// consecutive levels, and requires that the series had no such rise before.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

namespace plumbline::analysis {

struct LastingRise {
  bool rises = false;  // the series rises by a third, by more than noise
  bool half = false;   // the series rises by a half
  bool linear = false;
  double low = 0, end = 0;  // lowest level and level of the end: ln values, or values if linear
  double error = 0;         // standard error of end - low
  double most_before = 0;   // the largest rise between two levels before the lowest one
  uint64_t level_of = 0;    // number of points whose median is a level
  uint64_t since = 0;       // number of points since the lowest level
  int64_t onset_step = 0;   // the first point of the rise
  uint64_t points = 0;
};

inline constexpr size_t kFewestForLasting = 11, kMostForLasting = 256;

// `all` has the steps and ln values of all points, or values if `linear`. If `linear`, the rise
// must be the span of the earlier values instead of a third.
LastingRise LookForLastingRise(std::span<const std::pair<int64_t, double>> all, bool linear);

// A loss that falls without end: to -1,000 times its first values, or lower.
struct PlungeFigures {
  bool plunges = false;
  double start = 0;        // largest absolute value of the first points, at least 1
  double end = 0;          // median of the newest 3 points
  int64_t onset_step = 0;  // the first point from which on all are below -start
  uint64_t points = 0;
};

// `all` has the steps and values of the series, oldest first.
PlungeFigures LookForPlunge(std::span<const std::pair<int64_t, double>> all);

// A model that breaks between its first two logged points: one low point, then a level that is at
// least 2.5 times as high and never falls. Uses every point.
struct EarlyBreak {
  bool breaks = false;
  double first = 0;   // ln value of the first point
  double level = 0;   // ln value: median of the points after the second
  double lowest = 0;  // ln value: the lowest point after the first
  double sigma = 0;   // standard deviation of the points after the second
  int64_t step = 0;   // step of the second point
  uint64_t points = 0;
};

inline constexpr size_t kFewestForBreak = 10;

// `all` has the steps and ln values of the series, oldest first. If there are fewer than
// kFewestForBreak points, finds nothing.
EarlyBreak LookForEarlyBreak(std::span<const std::pair<int64_t, double>> all);

}  // namespace plumbline::analysis
