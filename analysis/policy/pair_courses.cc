#include "analysis/policy/pair_courses.h"

#include <algorithm>
#include <utility>

namespace plumbline::analysis {

bool MarginCourse::Take(int64_t step, double value) {
  constexpr double kSigmaOfDifference = 0.886;  // of normal noise: sqrt(pi) / 2
  if (points_++ > 0) differences_ += std::fabs(value - newest_);
  newest_ = value;
  level_.Take(value);
  if (!level_.known()) return false;
  const double sigma = kSigmaOfDifference * differences_ / static_cast<double>(points_ - 1);
  return below_.Take(level_.level() < -kNoise * sigma && level_.level() < 0, step, kInARow);
}

bool PairCourse::Take(double value) {
  ++points_;
  sum_ += value;
  newest_.push_back(value);
  if (newest_.size() > kNewest) newest_.pop_front();
  if (points_ < kFewest) return false;
  double newest = 0;
  for (const double v : newest_) newest += v / static_cast<double>(kNewest);
  return std::fabs(mean() - 0.5) <= kNear && std::fabs(newest - 0.5) <= kNear;
}

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
  constexpr size_t kMost = 256;
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
  if (kept_.size() < kFewest) return false;
  double medians[4];
  for (size_t i = 0; i < 4; ++i) medians[i] = MedianOfQuarter(i);
  const bool grows = medians[1] > medians[0] && medians[2] >= kGrows * medians[1] &&
                     medians[3] >= kGrows * medians[2] && medians[3] >= kLimit;
  if (grows) onset_ = kept_.front().step;
  return grows;
}

}  // namespace plumbline::analysis
