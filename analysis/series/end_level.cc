#include "analysis/series/end_level.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/series/robust.h"

namespace plumbline::analysis {
namespace {

constexpr double kEndErrors = 6;  // the same as health/loss-divergence
constexpr uint64_t kBeginPoints[] = {2, 3, 5, 8, 12, 16};
constexpr uint64_t kFewestOfEnd = 3, kMostOfEnd = 64;
// Share of the points at the end that are above all points of the beginning.
constexpr double kEndAway = 0.9;

double EndThirdUp() { return std::log(4.0 / 3); }

int64_t EndOnsetOf(const std::vector<BlockMedians::Block>& blocks, double level) {
  for (size_t i = blocks.size(); i-- > 0;) {
    if (blocks[i].median <= level) return blocks[std::min(i + 1, blocks.size() - 1)].step;
  }
  return blocks.front().step;
}

// Returns the standard error of the median of the last `last` blocks minus the level of the first
// `count` points.
double ErrorOf(const SeriesNoise& noise, uint64_t last, uint64_t length, uint64_t count) {
  return 1.25 * noise.sigma *
         std::sqrt(noise.inflation / static_cast<double>(last) +
                   static_cast<double>(length) / static_cast<double>(count));
}

// A loss that falls, and rises later, has a bend, which a line takes for noise. Returns the larger
// error of the parts up to the last block that is at most the beginning's level, and after it; a
// half more, because the parts are chosen by what they hold. HUGE_VAL if one is too short, or if
// the second one falls.
double ErrorOfParts(const std::vector<double>& values, double level, uint64_t last, uint64_t length,
                    uint64_t count) {
  constexpr size_t kFewestOfPart = 8;
  constexpr double kChosen = 1.5;
  size_t first = values.size();  // of the second part
  while (first > 0 && values[first - 1] > level) --first;
  if (first < kFewestOfPart || values.size() - first < kFewestOfPart) return HUGE_VAL;
  const auto cut = values.begin() + static_cast<std::ptrdiff_t>(first);
  // What jumped and falls back, as after a pruning, is on its way down.
  const auto middle = cut + static_cast<std::ptrdiff_t>((values.size() - first) / 2);
  std::vector<double> early(cut, middle), late(middle, values.end());
  if (MedianOf(late) < MedianOf(early)) return HUGE_VAL;
  return kChosen * std::max(ErrorOf(NoiseOf({values.begin(), cut}), last, length, count),
                            ErrorOf(NoiseOf({cut, values.end()}), last, length, count));
}

}  // namespace

EndFigures CompareEnd(std::span<const double> first, const BlockMedians& all, uint64_t points) {
  EndFigures figures;
  figures.points = points;
  if (points < kFewestForEnd) return figures;
  figures.known = true;
  std::vector<double> values;
  for (const BlockMedians::Block& block : all.blocks()) values.push_back(block.median);
  const size_t blocks = values.size();
  const uint64_t eighth = blocks < 16 ? blocks / 3 : std::max<uint64_t>(5, blocks / 8);
  const uint64_t last = std::clamp(eighth, kFewestOfEnd, kMostOfEnd);
  std::vector<double> end(values.end() - static_cast<std::ptrdiff_t>(last), values.end());
  const std::vector<double> end_values = end;
  figures.end_of = last * all.length();
  figures.end = MedianOf(end);
  figures.highest = *std::max_element(values.begin(), values.end());
  const SeriesNoise noise = NoiseOf(values);
  for (const uint64_t count : kBeginPoints) {
    if (count > first.size() || 3 * count > points) break;
    std::vector<double> begin(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(count));
    const double highest = *std::max_element(begin.begin(), begin.end());
    const double level = count == 2 ? highest : MedianOf(begin);
    double error = ErrorOf(noise, last, all.length(), count);
    const auto away = std::count_if(end_values.begin(), end_values.end(),
                                    [highest](double value) { return value > highest; });
    const double rise = figures.end - level;
    // Far above the beginning, and all of the end.
    if (rise >= std::log(2.0) && away == static_cast<std::ptrdiff_t>(last) &&
        rise < kEndErrors * error)
      error = std::min(error, ErrorOfParts(values, level, last, all.length(), count));
    const bool above = rise >= (count == 2 ? std::log(2.0) : EndThirdUp()) &&
                       rise >= kEndErrors * error &&
                       static_cast<double>(away) >= kEndAway * static_cast<double>(last);
    if (figures.above && !above) continue;
    figures.above = above;
    figures.begin_of = count;
    figures.begin = level;
    figures.error = error;
  }
  if (figures.above) figures.onset_step = EndOnsetOf(all.blocks(), figures.begin + 3 * noise.sigma);
  return figures;
}

}  // namespace plumbline::analysis
