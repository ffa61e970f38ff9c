#include "analysis/series/learning.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <set>
#include <vector>

#include "analysis/series/robust.h"

namespace plumbline::analysis {
namespace {

constexpr double kHiddenFall = 0.03;  // a fall that noise must not hide
constexpr double kNoFall = 0.015;     // a smaller fall does not count as a fall
constexpr double kFallErrors = 2.6;   // standard errors for 99 %
// Standard errors by which the first points may be above the rest.
constexpr double kFirstErrors = 3;
// Standard errors by which each eighth of the run may be below the level.
constexpr double kBlockErrors = 4;
constexpr uint32_t kMostClasses = 20;
constexpr double kNearClasses = 0.003;  // tolerance as a share of the loss
constexpr double kZeroErrors = 2;       // up to this number of standard errors, the fall may be 0

double LearningMedian(const std::vector<double>& values, size_t from, size_t count) {
  std::vector<double> part(values.begin() + static_cast<std::ptrdiff_t>(from),
                           values.begin() + static_cast<std::ptrdiff_t>(from + count));
  return MedianOf(part);
}

// If the loss is ln n, that of a uniform guess, returns the number of classes n. Otherwise returns
// 0.
uint32_t UniformClasses(double loss, double error) {
  const auto nearest = static_cast<uint32_t>(std::llround(std::exp(std::min(loss, 10.0))));
  if (nearest < 2 || nearest > kMostClasses) return 0;
  const double away = std::fabs(loss - std::log(nearest));
  return away <= std::min(kNearClasses * loss + kZeroErrors * error, 0.02) ? nearest : 0;
}

// All points lie within 0.6 % of each other, and at ln k to 0.07 %: by chance one flat loss in
// fifty.
void LookForUniform(const std::vector<double>& values, LearningFigures* figures) {
  constexpr double kNarrow = 0.006, kAtClasses = 0.0007;
  if (values.size() != figures->points) return;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  figures->level = LearningMedian(values, 0, values.size());
  const double loss = std::exp(figures->level);
  const uint32_t classes = UniformClasses(loss, 0);
  if (classes == 0 || !(*high - *low <= kNarrow)) return;
  if (!(std::fabs(loss - std::log(classes)) <= kAtClasses * loss)) return;
  const size_t third = values.size() / 3;
  figures->fall =
      LearningMedian(values, 0, third) - LearningMedian(values, values.size() - third, third);
  figures->most = *high - *low;
  figures->sigma = SigmaOfNeighbours(values);
  figures->classes = classes;
  const double apart = 1.25 * figures->sigma * std::sqrt(2 / static_cast<double>(third));
  figures->known = figures->flat = figures->fall <= kFallErrors * apart;
}

// If all points have the same value, the model learns nothing, also if there are few points.
void LookForConstant(const std::vector<double>& values, LearningFigures* figures) {
  const bool one =
      std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
  if (!one) return;
  figures->level = values.front();
  const double loss = std::exp(figures->level);
  if (SignificantDigits(loss) < kConstantDigits) return;
  figures->known = figures->flat = figures->constant = true;
  figures->classes = UniformClasses(loss, 0);
}

// Returns the unit of a value's last digit, as a log prints it.
double UnitOf(double value) {
  if (value == 0) return HUGE_VAL;
  return std::pow(10, std::floor(std::log10(std::fabs(value))) - SignificantDigits(value) + 1);
}

// Returns the smallest move if all others are multiples of it, as those of values in bf16 are; else
// `unit`.
double GridOf(std::span<const double> moves, double unit) {
  constexpr double kNear = 1e-3;
  double least = HUGE_VAL;
  for (const double move : moves) least = move > 0 ? std::min(least, move) : least;
  const bool grid = std::all_of(moves.begin(), moves.end(), [least](double move) {
    return std::fabs(move / least - std::round(move / least)) < kNear;
  });
  return grid ? std::max(unit, least) : unit;
}

// Returns true if the moves, oldest first, do not become ever smaller up to the last one: the
// larger of the newest two is as large as usual, or both of them are far above the resolution.
bool EndsAbruptly(std::span<const double> moves, double unit) {
  constexpr size_t kCompared = 8, kFewest = 3;
  constexpr double kUnits = 10, kManyUnits = 30, kAsUsual = 0.5, kShare = 0.15;
  if (moves.size() < 2 + kFewest) return false;
  const auto old = moves.first(moves.size() - 2);
  const auto compared = old.last(std::min(kCompared, old.size()));
  std::vector<double> usual(compared.begin(), compared.end());
  const double median = MedianOf(usual), grid = GridOf(moves, unit);
  const auto [less, more] = std::minmax(moves.back(), moves[moves.size() - 2]);
  return (more >= kUnits * grid && more >= kAsUsual * median) ||
         (less >= kManyUnits * grid && less >= kShare * median);
}

}  // namespace

int SignificantDigits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.11e", value);
  int digits = 0;
  for (int i = 0, at = 0; text[i] != '\0' && text[i] != 'e'; ++i) {
    if (text[i] < '0' || text[i] > '9') continue;
    ++at;
    if (text[i] != '0') digits = at;
  }
  return digits;
}

namespace {

// Returns true if a log prints the values with 4 digits; the last ones of some values are 0.
bool HaveDigits(const std::set<double>& values) {
  const auto many = std::count_if(values.begin(), values.end(), [](double value) {
    return SignificantDigits(value) >= kConstantDigits - 1;
  });
  return 4 * static_cast<size_t>(many) >= 3 * values.size();
}

// Returns true if the newest `period` values move as those before `first` do, and by many units of
// their last digit: a cycle in which full batches end is smaller.
bool MovesAsBefore(std::span<const std::pair<int64_t, double>> all, size_t first, size_t period) {
  constexpr double kShare = 0.25, kUnits = 10;
  constexpr size_t kFewestMoves = 3;
  if (first <= kFewestMoves) return false;
  std::vector<double> before, now;
  double unit = HUGE_VAL;
  for (size_t i = 1; i < all.size(); ++i) {
    const double move = std::fabs(all[i].second - all[i - 1].second);
    unit = std::min(unit, UnitOf(all[i].second));
    if (i < first) before.push_back(move);
    if (i + period >= all.size()) now.push_back(move);
  }
  const double moves = MedianOf(now);
  return moves >= kShare * MedianOf(before) && moves >= kUnits * unit;
}

}  // namespace

RepeatFigures LookForRepeats(std::span<const std::pair<int64_t, double>> all) {
  constexpr size_t kFewestEqual = 10, kFewestValues = 3;
  for (size_t period = kFewestValues; period + kFewestEqual <= all.size(); ++period) {
    size_t i = all.size();
    while (i > period && all[i - 1].second == all[i - 1 - period].second) --i;
    const size_t repeated = all.size() - i, first = i - period;
    // At least half of a period must repeat; all of it, if other values precede it.
    const size_t enough = first == 0 ? (period + 1) / 2 : period;
    if (repeated < std::max(kFewestEqual, enough)) continue;
    std::set<double> values;
    for (size_t k = 0; k < period; ++k) values.insert(all[first + k].second);
    if (values.size() < kFewestValues || !HaveDigits(values)) continue;
    if (first > 0 && !MovesAsBefore(all, first, period)) continue;
    return {true, period, repeated, all[first].first};
  }
  return {};
}

FrozenFigures LookForFrozen(std::span<const std::pair<int64_t, double>> all) {
  constexpr uint64_t kTimesBefore = 3;
  FrozenFigures figures;
  if (all.empty()) return figures;
  std::vector<double> moves;  // up to the first of the equal values at the end
  double unit = UnitOf(all[0].second);
  uint64_t equal = 1;
  for (size_t i = 1; i < all.size(); ++i) {
    const double value = all[i].second, old = all[i - 1].second;
    unit = std::min(unit, UnitOf(value));
    if (value == old) {
      ++equal;
      continue;
    }
    moves.resize(moves.size() + equal - 1);
    moves.push_back(std::fabs(value - old));
    figures.before = std::max(figures.before, equal);
    figures.rose |= value > old;
    equal = 1;
  }
  figures.points = equal;
  figures.step = all[all.size() - equal].first;
  figures.value = all.back().second;
  figures.frozen = equal >= kFewestConstant && equal >= kTimesBefore * figures.before &&
                   std::fabs(figures.value) >= std::pow(10, kConstantDigits - 1) * unit &&
                   EndsAbruptly(moves, unit);
  return figures;
}

namespace {

// Returns Kendall's test of a fall: by how many standard deviations, of values in any order, the
// pairs that fall outnumber those that rise. No shape of the fall is assumed.
double FallOfPairs(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double pairs = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = i + 1; j < values.size(); ++j)
      pairs += values[j] < values[i] ? 1 : values[j] > values[i] ? -1 : 0;
  }
  return (pairs - 1) / std::sqrt(n * (n - 1) * (2 * n + 5) / 18);
}

}  // namespace

// Under 24 points, 2.3 standard deviations of Kendall's test may replace the 4 standard errors.
FallFigures LookForFall(const BlockMedians& all, uint64_t points) {
  if (points < 8) return {};
  std::vector<double> values;
  for (const BlockMedians::Block& block : all.blocks()) values.push_back(block.median);
  const size_t third = values.size() / 3;
  const SeriesNoise noise = NoiseOf(values);
  const double error =
      1.25 * noise.sigma * std::sqrt(2 * noise.inflation / static_cast<double>(third));
  const double last = LearningMedian(values, values.size() - third, third);
  const double fall = LearningMedian(values, 0, third) - last;
  // The differences of neighbours of a short series that falls are not only noise.
  constexpr uint64_t kShortFall = 24;
  const double apart =
      *std::min_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(third)) -
      *std::max_element(values.end() - static_cast<ptrdiff_t>(third), values.end());
  constexpr double kPairs = 2.3;  // under 0.9 % of series of noise, for 8 to 23 points
  const bool far =
      points < kShortFall && (apart >= -std::log(0.8) || FallOfPairs(values) >= kPairs);
  const bool falls = fall >= 0.02 && (fall >= 4 * error || far);
  constexpr size_t kNewest = 3;  // number of blocks
  const double newest = LearningMedian(values, values.size() - kNewest, kNewest);
  return {true, falls, falls && newest <= last + std::max(0.05, 2 * noise.sigma)};
}

LearningFigures LookForLearning(std::span<const double> first, const BlockMedians& all,
                                uint64_t points) {
  LearningFigures figures;
  figures.points = points;
  if (points < kFewestConstant) return figures;
  std::vector<double> values;
  for (const BlockMedians::Block& block : all.blocks()) values.push_back(block.median);
  if (points < kFewestForLearning) {
    if (values.size() == points) LookForConstant(values, &figures);
    if (!figures.flat) LookForUniform(values, &figures);
    return figures;
  }
  LookForConstant(values, &figures);
  figures.flat = false;
  figures.known = true;
  const size_t count = values.size(), third = count / 3, eighth = count / 8;
  const SeriesNoise noise = NoiseOf(values);
  const auto error = [&](size_t of) {
    return 1.25 * noise.sigma * std::sqrt(noise.inflation / static_cast<double>(of));
  };
  figures.sigma = noise.sigma;
  figures.level = LearningMedian(values, 0, count);
  figures.fall = LearningMedian(values, 0, third) - LearningMedian(values, count - third, third);
  const double apart = std::sqrt(2.0) * error(third);
  figures.most = figures.fall + kFallErrors * apart;
  bool flat =
      figures.fall < std::min(kNoFall, kZeroErrors * apart + 0.001) && figures.fall > -kHiddenFall;
  // Tests whether the first points are at the level of the rest.
  for (const size_t begin : {size_t{1}, size_t{3}, size_t{8}}) {
    std::vector<double> head(
        first.begin(), first.begin() + static_cast<std::ptrdiff_t>(std::min(begin, first.size())));
    const double up = MedianOf(head) - figures.level;
    const double of = static_cast<double>(head.size());
    // Converts to the sigma of one point, because a block is the median of several.
    const double sigma =
        noise.sigma * std::sqrt(noise.inflation * static_cast<double>(all.length()));
    flat &= up <= kFirstErrors * std::max(sigma, 0.002) * (begin == 1 ? 1 : 1.25 / std::sqrt(of));
    flat &= std::fabs(up) <= (begin == 1 ? 5 : 2) * kHiddenFall;
  }
  const double lower = figures.level - kBlockErrors * error(eighth) - 0.002;
  for (size_t i = 0; i + eighth <= count; i += eighth)
    flat &= LearningMedian(values, i, eighth) >= lower;
  figures.left =
      LearningMedian(values, count - eighth, eighth) < lower || figures.fall >= kFallErrors * apart;
  figures.noisy = !(kFallErrors * apart < kHiddenFall) && figures.fall < kFallErrors * apart;
  figures.hidden = flat && !(figures.most < kHiddenFall);
  figures.flat = flat && !figures.hidden;
  figures.classes = UniformClasses(std::exp(figures.level), std::exp(figures.level) * error(count));
  return figures;
}

}  // namespace plumbline::analysis
