#include "analysis/series/end_level.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/series/robust.h"

namespace plumbline::analysis {
namespace {

constexpr double kEndErrors = 6;  // equal to the limit of health/loss-divergence
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

// Returns the number of the first value of a rise that passed `from`. It follows the last value
// that was, within noise, at the lowest level so far (the lowest median of 3).
size_t RiseFrom(const std::vector<double>& values, size_t from) {
  constexpr size_t kFewest = 4;
  constexpr double kErrorsOfPoint = 3;
  if (from < kFewest) return from;
  const std::vector<double> before(values.begin(),
                                   values.begin() + static_cast<std::ptrdiff_t>(from));
  double lowest = HUGE_VAL;
  for (size_t i = 2; i < from; ++i) {
    std::vector<double> three(before.begin() + static_cast<std::ptrdiff_t>(i - 2),
                              before.begin() + static_cast<std::ptrdiff_t>(i + 1));
    lowest = std::min(lowest, MedianOf(three));
  }
  const double level = lowest + kErrorsOfPoint * SigmaOfNeighbours(before);
  while (from > 0 && before[from - 1] > level) --from;
  return from;
}

// Returns the standard error of the median of the last `last` blocks minus the level of the first
// `count` points.
double ErrorOf(const SeriesNoise& noise, uint64_t last, uint64_t length, uint64_t count) {
  return 1.25 * noise.sigma *
         std::sqrt(noise.inflation / static_cast<double>(last) +
                   static_cast<double>(length) / static_cast<double>(count));
}

// If a loss falls and rises later, a single line would count the bend as noise. So divides it after
// the last block that is at most at the level of the beginning. Returns the larger error of the two
// parts, increased by a half because the values determine the parts. Returns HUGE_VAL if a part is
// too short, or if the second one falls.
double ErrorOfParts(const std::vector<double>& values, double level, uint64_t last, uint64_t length,
                    uint64_t count) {
  constexpr size_t kFewestOfPart = 8;
  constexpr double kChosen = 1.5;
  size_t first = values.size();  // first value of the second part
  while (first > 0 && values[first - 1] > level) --first;
  if (first < kFewestOfPart || values.size() - first < kFewestOfPart) return HUGE_VAL;
  const auto cut = values.begin() + static_cast<std::ptrdiff_t>(first);
  // A loss that jumped and falls back, as after a pruning, is already falling.
  const auto middle = cut + static_cast<std::ptrdiff_t>((values.size() - first) / 2);
  std::vector<double> early(cut, middle), late(middle, values.end());
  if (MedianOf(late) < MedianOf(early)) return HUGE_VAL;
  return kChosen * std::max(ErrorOf(NoiseOf({values.begin(), cut}), last, length, count),
                            ErrorOf(NoiseOf({cut, values.end()}), last, length, count));
}

// Handles a loss that breaks at about its third point, and falls back smoothly from its peak.
// Differences of neighbours would count this fall as noise, but second differences do not. Returns
// the standard error of the end from second differences, times 1.5. Returns HUGE_VAL if some later
// point is near the first `count` points.
double ErrorAfterBreak(const std::vector<double>& values, double highest, uint64_t last,
                       uint64_t length, uint64_t count) {
  constexpr double kChosen = 1.5;
  const double near = highest + std::log(1.5);
  if (std::any_of(values.begin() + static_cast<std::ptrdiff_t>(count), values.end(),
                  [near](double value) { return value <= near; }))
    return HUGE_VAL;
  std::vector<double> bends;
  for (size_t i = count + 2; i < values.size(); ++i)
    bends.push_back(values[i] - 2 * values[i - 1] + values[i - 2]);
  if (bends.size() < 6) return HUGE_VAL;
  // The variance of a second difference is six times that of a point.
  const SeriesNoise noise{kChosen * DeviationOf(bends) / std::sqrt(6.0)};
  return ErrorOf(noise, last, length, count);
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
    // True if the end is far above the beginning, and all its points are.
    if (rise >= std::log(2.0) && away == static_cast<std::ptrdiff_t>(last) &&
        rise < kEndErrors * error)
      error = std::min(error, ErrorOfParts(values, level, last, all.length(), count));
    if (count == 2 && all.length() == 1 && rise >= std::log(3.0) && rise < kEndErrors * error)
      error = std::min(error, ErrorAfterBreak(values, highest, last, all.length(), count));
    const bool above = rise >= (count == 2 ? std::log(2.0) : EndThirdUp()) &&
                       rise >= kEndErrors * error &&
                       static_cast<double>(away) >= kEndAway * static_cast<double>(last);
    if (figures.above && !above) continue;
    figures.above = above;
    figures.begin_of = count;
    figures.begin = level;
    figures.error = error;
  }
  if (!figures.above) return figures;
  figures.onset_step = EndOnsetOf(all.blocks(), figures.begin + 3 * noise.sigma);
  size_t from = 0;
  while (from + 1 < blocks && all.blocks()[from].step < figures.onset_step) ++from;
  figures.rise_step = all.blocks()[RiseFrom(values, from)].step;
  return figures;
}

namespace {

// Returns the number of the first point of the longest end in which all points are above all
// earlier points.
size_t EndAboveAll(const std::vector<double>& values, size_t fewest) {
  size_t first = values.size();
  double lowest = HUGE_VAL;
  std::vector<double> highest(values.size() + 1, -HUGE_VAL);
  for (size_t i = 0; i < values.size(); ++i) highest[i + 1] = std::max(highest[i], values[i]);
  for (size_t i = values.size(); i-- > fewest;) {
    lowest = std::min(lowest, values[i]);
    if (lowest > highest[i]) first = i;
  }
  return first;
}

// Returns true if each of the newest 3 differences of neighbours is at least `least`.
bool RisesEach(const std::vector<double>& values, double least) {
  constexpr size_t kSteps = 3;
  for (size_t i = values.size() - kSteps; i < values.size(); ++i) {
    if (!(values[i] - values[i - 1] >= least)) return false;
  }
  return true;
}

}  // namespace

ExplosionFigures LookForExplosion(std::span<const std::pair<int64_t, double>> newest, bool linear,
                                  const BlockMedians& all) {
  constexpr size_t kFewestBefore = 5, kFewestRows = 3, kFewestLinear = 8;
  constexpr double kExplosionErrors = 6, kEachErrors = 4;
  ExplosionFigures figures;
  figures.points = newest.size();
  figures.linear = linear;
  const size_t before = linear ? kFewestLinear : kFewestBefore;
  if (newest.size() < before + kFewestRows) return figures;
  std::vector<double> values;
  for (const auto& [step, y] : newest) values.push_back(y);
  const size_t first = EndAboveAll(values, before);
  if (first == values.size()) return figures;
  const auto cut = values.begin() + static_cast<std::ptrdiff_t>(first);
  const auto [lowest, highest] = std::minmax_element(values.begin(), cut);
  figures.rows = values.size() - first;
  figures.highest = *highest;
  figures.span = *highest - *lowest;
  for (const BlockMedians::Block& block : all.blocks()) {
    if (block.step < newest[first].first) figures.highest = std::max(figures.highest, block.median);
  }
  const double sigma = SigmaOfNeighbours({values.begin(), cut});
  if (linear && !(sigma > 0)) return figures;
  const double twice = linear ? 2 * figures.span : std::log(2.0);
  const double thrice = linear ? 3 * figures.span : std::log(3.0);
  const double fifth = linear ? figures.span / 2 : std::log(1.2);
  const double back = linear ? figures.span / 2 : std::log(4.0 / 3);
  const double top = *std::max_element(cut, values.end()), enough = kExplosionErrors * sigma;
  std::vector<double> three(values.end() - static_cast<std::ptrdiff_t>(kFewestRows), values.end());
  const double middle = MedianOf(three);
  figures.explodes = figures.rows >= kFewestRows && values.back() >= top - back &&
                     middle - figures.highest >= std::max(twice, enough);
  figures.end = figures.explodes ? middle : values.back();
  figures.explodes |= values.back() - figures.highest >= std::max(thrice, enough) &&
                      RisesEach(values, std::max(fifth, kEachErrors * sigma));
  if (figures.explodes) figures.rise_step = newest[RiseFrom(values, first)].first;
  return figures;
}

}  // namespace plumbline::analysis
