#include "analysis/tensor/position_rows.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr int64_t kFewDistinct = 4;
constexpr double kMostInterpolated = 0x1p20;

// Whole positions are exact until values are more than one apart. If values repeat below that, they
// are padding, or a document of one token.
bool CouldCollide(double value, DType dtype) {
  return UlpOf(value, dtype) > 1 || value != std::floor(value);
}

// Returns how many of values[begin..end) follow the count from `start`.
int64_t Follows(const double* values, int64_t begin, int64_t end, double start, double step,
                DType dtype) {
  int64_t i = begin;
  while (i < end &&
         RoundToFormat((start + static_cast<double>(i - begin)) * step, dtype) == values[i])
    ++i;
  return i;
}

int64_t Distinct(const double* values, int64_t begin, int64_t end) {
  int64_t distinct = begin < end ? 1 : 0;
  for (int64_t i = begin + 1; i < end; ++i) distinct += values[i] != values[i - 1] ? 1 : 0;
  return distinct;
}

// Returns the steps that a count in [begin, end) may have: whole positions, positions divided by an
// integer (interpolation), positions divided by the length.
std::vector<double> Steps(const double* values, int64_t begin, int64_t end) {
  std::vector<double> steps = {1};
  const auto n = static_cast<double>(end - begin);
  const double slope = (values[end - 1] - values[begin]) / (n - 1);
  if (!(slope > 0) || slope >= 0.75) return steps;
  // The values are rounded, so the slope is known to half an ulp at either end.
  const double factor = std::round(1 / slope);
  for (const double k : {factor - 1, factor, factor + 1}) {
    if (k >= 2 && k <= kMostInterpolated) steps.push_back(1 / k);
  }
  steps.push_back(1 / n);
  steps.push_back(1 / (n - 1));
  return steps;
}

// Returns the integers that the count may have at values[begin]. The values determine it unless
// they are all too coarse.
std::vector<double> Starts(double first, double step, DType dtype) {
  const double base = std::round(first / step);
  const double spread = std::min(256.0, std::ceil(0.5 * UlpOf(first, dtype) / step));
  std::vector<double> starts;
  for (double d = -spread; d <= spread; ++d) {
    if (base + d >= 0) starts.push_back(base + d);
  }
  return starts;
}

// Returns the longest counted stretch that begins at `begin`, as far as `work` allows.
CountedStretch Longest(const double* values, int64_t begin, int64_t end, DType dtype,
                       int64_t& work) {
  CountedStretch best{.begin = begin, .end = begin, .dtype = dtype};
  for (const double step : Steps(values, begin, end)) {
    for (const double start : Starts(values[begin], step, dtype)) {
      if (work <= 0) return best;
      const int64_t reached = Follows(values, begin, end, start, step, dtype);
      work -= reached - begin + 1;
      if (reached <= best.end) continue;
      best.end = reached;
      best.start = start;
      best.step = step;
      if (reached == end) return best;
    }
  }
  return best;
}

// The repeated last value may be padding, so a collision counts only if the positions continue
// after it.
void Finish(const double* values, CountedStretch& s) {
  s.distinct = Distinct(values, s.begin, s.end);
  for (int64_t i = s.begin; i + 1 < s.end; ++i) {
    if (values[i] != values[i + 1] || values[i] == values[s.end - 1]) continue;
    s.collision = i;
    break;
  }
}

}  // namespace

// A wrong start is detected within the positions of one ulp. If values are so large that every
// start explains all of them, they would cost hundreds of comparisons each.
int64_t PositionWork(int64_t values) { return 32 * values + (int64_t{1} << 22); }

PositionRow LookAtPositions(const double* values, int64_t n, DType dtype, int64_t& work) {
  PositionRow row;
  for (int64_t begin = 0; begin < n;) {
    int64_t end = begin + 1;  // end of the values that do not fall
    while (end < n && std::isfinite(values[end]) && values[end] >= values[end - 1]) ++end;
    for (int64_t i = begin; i + 1 < end; ++i)
      row.repeats |= values[i] == values[i + 1] && CouldCollide(values[i], dtype);
    if (work > 0 && end - begin >= kFewDistinct && std::isfinite(values[begin])) {
      // Left padding repeats one value before the count begins.
      int64_t first = begin;
      while (first + 1 < end && values[first + 1] == values[first]) ++first;
      CountedStretch whole = Longest(values, begin, end, dtype, work);
      if (first > begin) {
        const CountedStretch rest = Longest(values, first, end, dtype, work);
        if (rest.length() > whole.length()) whole = rest;
      }
      Finish(values, whole);
      if (whole.distinct >= kFewDistinct) row.stretches.push_back(whole);
    }
    begin = end;
  }
  return row;
}

}  // namespace plumbline::analysis
