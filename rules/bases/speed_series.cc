#include "rules/bases/speed_series.h"

#include <algorithm>
#include <vector>

#include "analysis/series/series.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {

void SpeedSeries::Add(int64_t step, double value) {
  if (points++ == 0) first = step;
  last = step;
  above_one += value > 1 ? 1 : 0;
  if (value > worst) {
    worst = value;
    worst_step = step;
  }
  newest.push_back(value);
  steps.push_back(step);
  if (newest.size() > 2 * kHalf) {
    newest.pop_front();
    steps.pop_front();
  }
  if (fell) return;
  if (judges_drops && points % kHalf == 0 && newest.size() == 2 * kHalf) LookForDrop();
  if (!fell && points % (kShort / 2) == 0) LookForCollapse();
}

void SpeedSeries::AddRatio(double ratio) {
  ratios.push_back(ratio);
  if (ratios.size() > kHalf) ratios.pop_front();
}

double SpeedSeries::Median(size_t from, size_t count) const {
  std::vector<double> part(newest.begin() + static_cast<ptrdiff_t>(from),
                           newest.begin() + static_cast<ptrdiff_t>(from + count));
  return MedianOf(part);
}

void SpeedSeries::LookForDrop() {
  const double old_level = Median(0, kHalf), level = Median(kHalf, kHalf);
  std::vector<double> old_part(newest.begin(), newest.begin() + kHalf);
  std::vector<double> part(newest.begin() + kHalf, newest.end());
  const double deviation = std::max(DeviationOf(old_part), DeviationOf(part));
  // For a median of 64: 1.25 deviations over the root of 64.
  const bool sure = old_level - level >= kDeviations * 1.25 * deviation / 8;
  const double most = (1 - kDrop) * old_level;
  if (!sure || !(level <= most) || !(Median(kHalf, kHalf / 2) <= most) ||
      !(Median(kHalf + kHalf / 2, kHalf / 2) <= most))
    return;
  fell = true;
  before = old_level;
  after = level;
  fell_step = steps[kHalf];
  fell_of = kHalf;
}

void SpeedSeries::LookForCollapse() {
  if (newest.size() < 2 * kShort) return;
  const size_t newer = newest.size() - kShort;
  const auto begin = newest.begin() + static_cast<ptrdiff_t>(newer);
  const double highest = *std::max_element(begin, newest.end());
  const auto oldest = newest.begin() + static_cast<ptrdiff_t>(newer - std::min(newer, 2 * kShort));
  if (!(highest < collapse * *std::max_element(oldest, begin))) return;  // most points
  for (size_t gap = 0; gap <= kShort && gap + kShort <= newer; gap += kShort / 2) {
    const size_t from = newer - gap - kShort;
    std::vector<double> old_part(newest.begin() + static_cast<ptrdiff_t>(from),
                                 newest.begin() + static_cast<ptrdiff_t>(from + kShort));
    std::sort(old_part.begin(), old_part.end());
    if (!(highest < collapse * old_part[1])) continue;  // one low point is an evaluation
    fell = true;
    before = Median(from, kShort);
    after = Median(newer, kShort);
    fell_of = kShort;
    size_t at = newer;
    while (at > from && newest[at - 1] < collapse * old_part[1]) --at;
    fell_step = steps[at];
    return;
  }
}

}  // namespace plumbline::rules
