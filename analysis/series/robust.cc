#include "analysis/series/robust.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace plumbline::analysis {

double MedianOf(std::span<double> values) {
  if (values.empty()) return NAN;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

double MedianOfNine(std::array<double, 9> v) {
  const auto order = [&v](size_t a, size_t b) {
    const double low = std::min(v[a], v[b]);
    v[b] = std::max(v[a], v[b]);
    v[a] = low;
  };
  order(1, 2), order(4, 5), order(7, 8), order(0, 1), order(3, 4), order(6, 7), order(1, 2);
  order(4, 5), order(7, 8), order(0, 3), order(5, 8), order(4, 7), order(3, 6), order(1, 4);
  order(2, 5), order(4, 7), order(4, 2), order(6, 4), order(4, 2);
  return v[4];
}

double SortedMedian(const double* values, size_t count) {
  if (count == 0) return NAN;
  return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

double DeviationOf(std::span<double> values) {
  const double middle = MedianOf(values);
  for (double& value : values) value = std::fabs(value - middle);
  return 1.4826 * MedianOf(values);
}

double SmallestGap(std::span<double> values) {
  std::sort(values.begin(), values.end());
  double gap = HUGE_VAL;
  for (size_t i = 1; i < values.size(); ++i) {
    const double difference = values[i] - values[i - 1];
    if (difference > 0 && difference < gap) gap = difference;
  }
  return std::isfinite(gap) ? gap : 0;
}

SlopeInterval TheilSen(std::span<const double> x, std::span<const double> y) {
  const size_t n = y.size();
  if (n < 2) return {0, -HUGE_VAL, HUGE_VAL};
  std::vector<double> slopes;
  slopes.reserve(n * (n - 1) / 2);
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = i + 1; k < n; ++k) {
      const double width = x.empty() ? static_cast<double>(k - i) : x[k] - x[i];
      slopes.push_back((y[k] - y[i]) / width);
    }
  }
  const double count = static_cast<double>(slopes.size()), of = static_cast<double>(n);
  const double spread = 2.5758293035489004 * std::sqrt(of * (of - 1) * (2 * of + 5) / 18);
  const double below = std::floor((count - spread) / 2);  // number of slopes below the interval
  SlopeInterval interval{MedianOf(slopes), -HUGE_VAL, HUGE_VAL};
  if (!(below >= 1)) return interval;
  const auto rank = static_cast<ptrdiff_t>(below);
  std::nth_element(slopes.begin(), slopes.begin() + (rank - 1), slopes.end());
  interval.low = slopes[static_cast<size_t>(rank) - 1];
  std::nth_element(slopes.begin(), slopes.end() - rank, slopes.end());
  interval.high = *(slopes.end() - rank);
  return interval;
}

namespace {

double* FirstAtLeast(double* values, size_t count, double value) {
  return values + LeadingOf(values, count, [value](double known) { return known < value; });
}

}  // namespace

double* SortedWindow::PlaceOf(double value) {
  return FirstAtLeast(values_.data(), values_.size(), value);
}

void SortedWindow::Insert(double value) {
  values_.insert(values_.begin() + (PlaceOf(value) - values_.data()), value);
}

void SortedWindow::Erase(double value) {
  values_.erase(values_.begin() + (PlaceOf(value) - values_.data()));
}

// Moves only the values between the two places, by one place.
void SortedWindow::Replace(double gone, double come) {
  double* const begin = values_.data();
  double* const end = begin + values_.size();
  double* const from = PlaceOf(gone);
  if (come >= gone) {
    double* const to = FirstAtLeast(from + 1, static_cast<size_t>(end - from - 1), come);
    std::move(from + 1, to, from);
    *(to - 1) = come;
  } else {
    double* const to = FirstAtLeast(begin, static_cast<size_t>(from - begin), come);
    std::move_backward(to, from, from + 1);
    *to = come;
  }
}

namespace {

std::vector<double> NewestValues(const std::vector<double>& values, size_t count) {
  count = std::min(count, values.size());
  return {values.end() - static_cast<std::ptrdiff_t>(count), values.end()};
}

}  // namespace

double SigmaOfNeighbours(const std::vector<double>& values) {
  std::vector<double> steps;
  for (size_t i = 1; i < values.size(); ++i) steps.push_back(values[i] - values[i - 1]);
  return steps.empty() ? 0 : DeviationOf(steps) / std::sqrt(2.0);
}

double SigmaAboutLine(std::vector<double> values) {
  if (values.size() < 4) return SigmaOfNeighbours(values);
  const double slope = TheilSen({}, values).slope;
  for (size_t i = 0; i < values.size(); ++i) values[i] -= slope * static_cast<double>(i);
  return DeviationOf(values);
}

SeriesNoise NoiseOf(const std::vector<double>& values) {
  const double near = SigmaOfNeighbours(values);
  const double half = SigmaAboutLine(NewestValues(values, std::max<size_t>(values.size() / 2, 4)));
  SeriesNoise noise{std::max(near, half)};
  if (!(half > near)) return noise;
  // As in Riser::ErrorOf, sigma from neighbours is sqrt(1 - r) times the true one.
  const double less = std::max(0.05, (near / half) * (near / half));
  noise.inflation = (2 - less) / less;
  return noise;
}

}  // namespace plumbline::analysis
