#include "analysis/drift/episode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "analysis/drift/details.h"
#include "analysis/statistics/statistics.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kMostGroups = 1024;

// One or more neighbouring steps.
struct StepGroup {
  int64_t first = 0, last = 0;
  double log_square = 0;
  double by_tokens = 0;  // log of the mean square, relative to tokens with the same log mu
};

std::vector<StepGroup> StepGroupsOf(std::span<const DriftPoint> points) {
  double least = std::numeric_limits<double>::infinity();
  for (const DriftPoint& p : points) {
    if (p.mean_square > 0) least = std::min(least, p.mean_square);
  }
  std::vector<StepGroup> groups;
  if (!std::isfinite(least)) return groups;
  const size_t of = (points.size() + kMostGroups - 1) / kMostGroups;
  for (size_t begin = 0; begin + of <= points.size(); begin += of) {
    StepGroup group{points[begin].step, points[begin + of - 1].step};
    double expected = 0, squares = 0;
    for (const DriftPoint& p : points.subspan(begin, of)) {
      squares += std::max(p.mean_square, least / 2) / static_cast<double>(of);
      expected += std::max(p.expected_square, least / 2) / static_cast<double>(of);
    }
    group.log_square = std::log(squares);
    group.by_tokens = std::log(squares / expected);
    groups.push_back(group);
  }
  return groups;
}

// Residual sum of squares of the best line over 0, 1, 2, ..., and the sum about the mean.
struct SeriesResiduals {
  double line = 0, mean = 0;
};

SeriesResiduals SeriesResidualsOf(const std::vector<double>& y) {
  const auto n = static_cast<double>(y.size());
  double sum = 0, squares = 0, xy = 0, xx = 0;
  for (const double v : y) sum += v;
  for (size_t i = 0; i < y.size(); ++i) {
    const double x = static_cast<double>(i) - (n - 1) / 2, d = y[i] - sum / n;
    squares += d * d;
    xy += x * d;
    xx += x * x;
  }
  return {squares - xy * xy / xx, squares};
}

struct StepSpan {
  size_t begin = 0, end = 0;
  double gain = 0;  // squares that the two levels explain
};

// Returns the stretch whose higher level explains most squares.
StepSpan BestSpan(const std::vector<double>& y) {
  using E = DriftEpisode;
  const size_t n = y.size();
  std::vector<double> head(n + 1, 0);
  for (size_t i = 0; i < n; ++i) head[i + 1] = head[i] + y[i];
  const double mean = head[n] / static_cast<double>(n);
  StepSpan best;
  for (size_t begin = E::kFewestBefore; begin + E::kFewestInside + E::kFewestBefore <= n; ++begin) {
    for (size_t end = begin + E::kFewestInside; end + E::kFewestBefore <= n; ++end) {
      const auto inside = static_cast<double>(end - begin);
      const double outside = static_cast<double>(n) - inside;
      if (outside < static_cast<double>(E::kFewestOutside)) continue;
      const double excess = head[end] - head[begin] - mean * inside;
      if (!(excess > 0)) continue;
      const double gain = excess * excess * (1 / inside + 1 / outside);
      if (gain > best.gain) best = {begin, end, gain};
    }
  }
  return best;
}

double LevelOfSpan(const std::vector<double>& y, const StepSpan& span, bool inside) {
  double sum = 0, n = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    if ((i >= span.begin && i < span.end) != inside) continue;
    sum += y[i];
    n += 1;
  }
  return sum / n;
}

// True if the values next to the stretch, outside it, are below the middle of both levels.
bool HasLowNeighbours(const std::vector<double>& y, const StepSpan& span, double middle) {
  for (size_t i = 1; i <= DriftEpisode::kFewestBefore; ++i) {
    if (!(y[span.begin - i] < middle) || !(y[span.end + i - 1] < middle)) return false;
  }
  return true;
}

// True if nine of ten values inside are above the middle of both levels, and nine of ten outside
// below it.
bool IsSpanApart(const std::vector<double>& y, const StepSpan& span, double middle) {
  constexpr double kOfTen = 0.9;
  double right_in = 0, right_out = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const bool inside = i >= span.begin && i < span.end;
    if (inside) right_in += y[i] > middle;
    if (!inside) right_out += y[i] < middle;
  }
  const auto in = static_cast<double>(span.end - span.begin);
  return right_in >= kOfTen * in && right_out >= kOfTen * (static_cast<double>(y.size()) - in);
}

}  // namespace

DriftEpisode FindEpisode(std::span<const DriftPoint> points) {
  constexpr double kLeaves = 0.4;
  DriftEpisode episode;
  episode.steps = points.size();
  const std::vector<StepGroup> groups = StepGroupsOf(points);
  if (groups.size() < DriftEpisode::kFewestInside + DriftEpisode::kFewestOutside) return episode;
  std::vector<double> y, by_tokens;
  for (const StepGroup& g : groups) {
    y.push_back(g.log_square);
    by_tokens.push_back(g.by_tokens);
  }
  const StepSpan span = BestSpan(y);
  if (!(span.gain > 0)) return episode;
  const double high = LevelOfSpan(y, span, true), low = LevelOfSpan(y, span, false);
  const auto n = static_cast<double>(y.size());
  const auto inside = static_cast<double>(span.end - span.begin);
  const SeriesResiduals residuals = SeriesResidualsOf(y);
  const double left = std::max(residuals.mean - span.gain, 0.0);
  episode.rise = high - low;
  episode.standard_error = std::sqrt(left / (n - 3) * (1 / inside + 1 / (n - inside)));
  episode.first = groups[span.begin].first;
  episode.last = groups[span.end - 1].last;
  episode.after = groups[span.end].first;
  const double errors = DriftEpisode::kDeviations * StudentFactor(n - 2);
  const bool large =
      episode.rise >= std::numbers::ln2 && episode.rise >= errors * episode.standard_error &&
      left <= kLeaves * residuals.line && high > std::log(kDriftHealthy) &&
      HasLowNeighbours(y, span, (high + low) / 2) && IsSpanApart(y, span, (high + low) / 2);
  const double of_tokens = LevelOfSpan(by_tokens, span, true) - LevelOfSpan(by_tokens, span, false);
  episode.other_tokens = large && of_tokens < episode.rise / 2;
  episode.found = large && !episode.other_tokens;
  return episode;
}

}  // namespace plumbline::analysis
