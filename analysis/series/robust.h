// Computes medians, and estimates from medians.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace plumbline::analysis {

// Returns the median; the mean of the middle two if the number is even, NaN if there are none.
// Reorders `values`.
double MedianOf(std::span<double> values);

// Returns the median of nine numbers without branches. None may be NaN. Uses Paeth's sorting
// network ("Median Finding on a 3x3 Grid", Graphics Gems, 1990).
double MedianOfNine(std::array<double, 9> v);

// Returns the median of values in ascending order.
double SortedMedian(const double* values, size_t count);

// Returns 1.4826 times the median distance from the median. For normal values it is the standard
// deviation. Overwrites `values`.
double DeviationOf(std::span<double> values);

// Returns the smallest non-zero difference between two values. If all are equal, returns 0. Sorts
// `values`.
double SmallestGap(std::span<double> values);

// Theil-Sen estimate: the median slope of all pairs, and its 99 % interval by Sen's normal
// approximation of Kendall's statistic (1968). It is valid for independent errors of one
// distribution. `x` is ascending; if `x` is empty, 0, 1, 2, ... is used. If there are too few
// points for a bound, that bound is infinite.
struct SlopeInterval {
  double slope = 0, low = 0, high = 0;
};
SlopeInterval TheilSen(std::span<const double> x, std::span<const double> y);

// The noise of a series, estimated from its points.
struct SeriesNoise {
  double sigma = 0;      // standard deviation of a value
  double inflation = 1;  // factor on the variance of a mean, due to correlation
};

// Estimates sigma from differences of neighbours. A slope or a single jump does not change it.
double SigmaOfNeighbours(const std::vector<double>& values);
// Estimates sigma around the Theil-Sen line through the values. It includes noise that is
// correlated over this length.
double SigmaAboutLine(std::vector<double> values);
// Returns the larger of two estimates: from neighbours of all values, and from the newest half
// around a line.
SeriesNoise NoiseOf(const std::vector<double>& values);

// Returns the number of the first `count` values for which `before` is true. No true value may
// follow a false one. Like std::partition_point, but for few values: it has no unpredictable
// branch, and no comparison depends on another.
template <typename Before>
size_t LeadingOf(const double* values, size_t count, const Before& before) {
  constexpr size_t kBlock = 8;
  size_t place = 0;
  for (size_t i = kBlock; i <= count; i += kBlock) place += before(values[i - 1]) ? kBlock : 0;
  const size_t end = place + kBlock < count ? place + kBlock : count;
  size_t more = 0;
  for (size_t i = place; i < end; ++i) more += before(values[i]) ? 1 : 0;
  return place + more;
}

// A few values in sorted order. One value is added and one removed at a time.
class SortedWindow {
 public:
  void Clear() { values_.clear(); }
  void Insert(double value);
  void Erase(double value);  // `value` must be present
  void Replace(double gone, double come);
  size_t size() const { return values_.size(); }
  double median() const { return SortedMedian(values_.data(), values_.size()); }

 private:
  double* PlaceOf(double value);  // the first place that is not smaller

  std::vector<double> values_;
};

}  // namespace plumbline::analysis
