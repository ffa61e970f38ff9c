#include "analysis/policy/staleness_course.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace plumbline::analysis {

double StalenessCourse::MedianOfQuarter(size_t quarter) const {
  const size_t length = kept_.size() / 4;
  std::vector<double> values;
  for (size_t i = quarter * length; i < (quarter + 1) * length; ++i)
    values.push_back(kept_[i].value);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool StalenessCourse::Take(int64_t step, double value) {
  constexpr size_t kMost = 512;
  if (!std::isfinite(value)) return false;
  ++points_;
  if (++skipped_ < stride_) return false;
  skipped_ = 0;
  kept_.push_back({step, value});
  if (kept_.size() >= kMost) {
    std::vector<Point> half;
    for (size_t i = 0; i < kept_.size(); i += 2) half.push_back(kept_[i]);
    kept_ = std::move(half);
    stride_ *= 2;
  }
  if (kept_.size() < 4 || points_ < kFewest) return false;
  double medians[4];
  for (size_t i = 0; i < 4; ++i) medians[i] = MedianOfQuarter(i);
  const bool grows = medians[1] > medians[0] && medians[2] >= kGrows * medians[1] &&
                     medians[3] >= kGrows * medians[2] && medians[3] >= kLimit;
  if (grows) onset_ = kept_.front().step;
  return grows;
}

}  // namespace plumbline::analysis
