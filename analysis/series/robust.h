// Medians and what is made of them.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace plumbline::rules {

// Of an even number the mean of the middle two; NaN of none. The values change places.
double MedianOf(std::span<double> values);

// Of nine numbers, none of them NaN, without a jump: a network of Paeth ("Median Finding on a 3x3
// Grid", Graphics Gems, 1990).
double MedianOfNine(std::array<double, 9> v);

// Of values in ascending order.
double SortedMedian(const double* values, size_t count);

// 1.4826 x the median distance from the median: the deviation of normal values. They are replaced.
double DeviationOf(std::span<double> values);

// The smallest difference that is not 0 between two of them; 0: all are equal. They are sorted.
double SmallestGap(std::span<double> values);

// Theil-Sen: the median slope of all pairs, and its 99 % interval by Sen's normal approximation of
// Kendall's statistic (1968), which holds for independent errors of any one distribution. `x` is
// ascending; empty: 0, 1, 2, ... Too few points for a bound: it is infinite.
struct SlopeInterval {
  double slope = 0, low = 0, high = 0;
};
SlopeInterval TheilSen(std::span<const double> x, std::span<const double> y);

// The noise of a series, as far as its points tell.
struct SeriesNoise {
  double sigma = 0;      // of a value
  double inflation = 1;  // of the variance of a mean, by correlation
};

// From neighbours alone: no slope and no single jump changes it.
double SigmaOfNeighbours(const std::vector<double>& values);
// About the Theil-Sen line through them: what correlated noise does within so many is in it.
double SigmaAboutLine(std::vector<double> values);
// Of all values from neighbours, or of the newest half about a line, whichever is more.
SeriesNoise NoiseOf(const std::vector<double>& values);

// Of the first `count` values how many `before` is true of, where it is true of none behind one
// that it is false of: std::partition_point for a handful of values, without a jump that noise
// makes unpredictable and without a comparison that waits for another.
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

// A handful of values in order, of which one comes and one goes.
class SortedWindow {
 public:
  void Clear() { values_.clear(); }
  void Insert(double value);
  void Erase(double value);  // one that it holds
  void Replace(double gone, double come);
  size_t size() const { return values_.size(); }
  double median() const { return SortedMedian(values_.data(), values_.size()); }

 private:
  double* PlaceOf(double value);  // the first that is not smaller

  std::vector<double> values_;
};

}  // namespace plumbline::rules
