#include "analysis/series/lasting_rise.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/series/robust.h"

namespace plumbline::analysis {
namespace {

// In standard errors of independent points, with the noise of the noisier part.
constexpr double kLastingErrors = 5;
constexpr double kOverEarlier = 2;  // factor over the largest earlier rise
constexpr size_t kFewestLow = 5;    // fewest points up to the lowest level, and after it
constexpr double kStaysUp =
    1.0 / 3;  // share of the rise by which the end may be below the highest level

using Values = std::vector<double>;

Values RangeOf(const Values& values, size_t from, size_t to) {
  return {values.begin() + static_cast<std::ptrdiff_t>(from),
          values.begin() + static_cast<std::ptrdiff_t>(to)};
}

double MedianOfRange(const Values& values, size_t from, size_t to) {
  Values part = RangeOf(values, from, to);
  return MedianOf(part);
}

// Returns the median of each window of `width` points, in order.
Values LevelsOf(const Values& values, size_t width) {
  Values levels;
  for (size_t i = width; i <= values.size(); ++i)
    levels.push_back(MedianOfRange(values, i - width, i));
  return levels;
}

// Returns the largest rise between two of the first `count` levels, from an earlier to a later one.
double LargestRiseOf(const Values& levels, size_t count) {
  double lowest = HUGE_VAL, most = 0;
  for (size_t i = 0; i < count; ++i) {
    most = std::max(most, levels[i] - lowest);
    lowest = std::min(lowest, levels[i]);
  }
  return most;
}

// Returns the standard error of the difference of two levels. Computes the noise of the parts
// before and after `cut` separately, so that a bend between them does not count. The noise of few
// points is uncertain.
double ErrorOfLevels(const Values& values, size_t cut, size_t width) {
  double worst = 0;
  for (const Values& part : {RangeOf(values, 0, cut), RangeOf(values, cut, values.size())}) {
    const SeriesNoise noise = NoiseOf(part);
    const double few = 1 + 2 / static_cast<double>(part.size());
    worst = std::max(worst, few * noise.sigma * std::sqrt(noise.inflation));
  }
  return 1.25 * worst * std::sqrt(2 / static_cast<double>(width));
}

// Returns true if the part after the lowest level does not fall back.
bool Stays(const Values& values, const Values& levels, size_t lowest, size_t first, double rise) {
  const double top =
      *std::max_element(levels.begin() + static_cast<std::ptrdiff_t>(lowest), levels.end());
  if (top - levels.back() > kStaysUp * rise) return false;
  const size_t middle = first + (values.size() - first) / 2;
  return MedianOfRange(values, middle, values.size()) >=
         MedianOfRange(values, first, middle) - kStaysUp / 2 * rise;
}

}  // namespace

LastingRise LookForLastingRise(std::span<const std::pair<int64_t, double>> all, bool linear) {
  LastingRise found;
  found.points = all.size();
  found.linear = linear;
  const size_t count = all.size();
  if (count < kFewestForLasting || count > kMostForLasting) return found;
  Values values;
  for (const auto& [step, y] : all) values.push_back(y);
  const size_t width = std::clamp<size_t>(count / 6, 3, 16);
  const Values levels = LevelsOf(values, width);
  const auto lowest = static_cast<size_t>(
      std::min_element(levels.begin(), levels.end() - static_cast<std::ptrdiff_t>(width)) -
      levels.begin());
  const size_t low_end = lowest + width;  // points up to the end of the lowest level
  if (low_end < kFewestLow || count - low_end < kFewestLow) return found;
  found.low = levels[lowest];
  found.end = levels.back();
  found.level_of = width;
  found.since = count - low_end;
  const double rise = found.end - found.low, half_way = found.low + rise / 2;
  // The rise begins after the last point that is at half of its height.
  size_t first = count;
  while (first > low_end && values[first - 1] > half_way) --first;
  if (count - first < kFewestLow) return found;
  found.most_before = LargestRiseOf(levels, lowest + 1);
  found.error = ErrorOfLevels(values, low_end, width);
  const auto [least, most] =
      std::minmax_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(low_end));
  const double third = linear ? *most - *least : std::log(4.0 / 3);
  const double half = linear ? 2 * third : std::log(1.5);
  const double lowest_of_end =
      *std::min_element(values.end() - static_cast<std::ptrdiff_t>(width), values.end());
  const double highest_of_low =
      *std::max_element(values.begin() + static_cast<std::ptrdiff_t>(lowest),
                        values.begin() + static_cast<std::ptrdiff_t>(low_end));
  found.rises = rise >= third && rise >= kLastingErrors * found.error && rise > 0 &&
                rise >= kOverEarlier * found.most_before && lowest_of_end > highest_of_low &&
                Stays(values, levels, lowest, first, rise);
  found.half = found.rises && rise >= half;
  const double noise = found.error * std::sqrt(static_cast<double>(width) / 2) / 1.25;
  size_t onset = first;
  while (onset > low_end && values[onset - 1] > found.low + std::min(2 * noise, rise / 2)) --onset;
  found.onset_step = all[std::min(onset, count - 1)].first;
  return found;
}

namespace {

// Returns true if the values fall in each quarter, and the fall in the second half is at least four
// fifths of that in the first half. A loss with a lowest value, or one that falls like a logarithm,
// slows down.
bool DoesNotSlow(const Values& values) {
  constexpr size_t kParts = 4;
  constexpr double kAsFast = 0.8;
  Values levels;
  for (size_t part = 0; part <= kParts; ++part) {
    const size_t at = part * (values.size() - 2) / kParts;
    levels.push_back(MedianOfRange(values, at, at + 2));
  }
  for (size_t i = 1; i < levels.size(); ++i) {
    if (!(levels[i] < levels[i - 1])) return false;
  }
  return levels[2] - levels[4] >= kAsFast * (levels[0] - levels[2]);
}

}  // namespace

PlungeFigures LookForPlunge(std::span<const std::pair<int64_t, double>> all) {
  constexpr size_t kFewestForPlunge = 10, kFirst = 5, kNewest = 3;
  constexpr double kPlunge = 1000;
  PlungeFigures found;
  found.points = all.size();
  if (all.size() < kFewestForPlunge) return found;
  Values values;
  for (const auto& [step, y] : all) values.push_back(y);
  found.start = 1;
  for (size_t i = 0; i < kFirst; ++i) found.start = std::max(found.start, std::fabs(values[i]));
  const size_t count = values.size();
  found.end = MedianOfRange(values, count - kNewest, count);
  const double middle = MedianOfRange(values, count / 2, count / 2 + kNewest);
  found.plunges = found.end <= -kPlunge * found.start && found.end <= 2 * std::min(middle, 0.0);
  if (!found.plunges && DoesNotSlow(values)) {
    const double start = std::max(1.0, std::fabs(values.front()));
    found.plunges = found.end <= -kPlunge * start;
    if (found.plunges) found.start = start;
  }
  size_t first = count;
  while (first > 0 && values[first - 1] < -found.start) --first;
  found.onset_step = all[std::min(first, count - 1)].first;
  return found;
}

EarlyBreak LookForEarlyBreak(std::span<const std::pair<int64_t, double>> all) {
  constexpr size_t kSkipped = 2;  // skips the first point, and one point within the rise
  constexpr double kSigmas = 10, kErrors = 3;
  EarlyBreak figures;
  figures.points = all.size();
  if (all.size() < kFewestForBreak) return figures;
  std::vector<double> values;
  for (const auto& [step, y] : all.subspan(kSkipped)) values.push_back(y);
  figures.first = all.front().second;
  figures.step = all[1].first;
  std::vector<double> all_values = values;  // a copy, because MedianOf sorts
  figures.level = MedianOf(all_values);
  figures.lowest = std::min(all[1].second, *std::min_element(values.begin(), values.end()));
  figures.sigma = SigmaOfNeighbours(values);
  const double rise = figures.level - figures.first;
  if (!(rise >= std::log(2.5)) || !(rise >= kSigmas * figures.sigma)) return figures;
  if (!(figures.lowest >= figures.first + rise / 2)) return figures;
  // A loss that falls after the jump is not broken; its first value may have been that of only a
  // part.
  const size_t third = values.size() / 3;
  std::vector<double> early(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(third));
  std::vector<double> late(values.end() - static_cast<std::ptrdiff_t>(third), values.end());
  const double error = 1.25 * figures.sigma * std::sqrt(2 / static_cast<double>(third));
  figures.breaks = MedianOf(early) - MedianOf(late) <= std::max(std::log(1.05), kErrors * error);
  return figures;
}

}  // namespace plumbline::analysis
