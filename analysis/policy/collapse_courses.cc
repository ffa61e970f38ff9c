#include "analysis/policy/collapse_courses.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace plumbline::analysis {
namespace {

constexpr size_t kMost = 512;
// An explosion's level exceeds each earlier level by this factor.
constexpr double kAbovePeaks = 1.5;

template <typename Values>
double MedianOf(const Values& values) {
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace

double NewestLevel::level() const {
  return newest_.empty() ? std::numeric_limits<double>::quiet_NaN() : MedianOf(newest_);
}

bool RewardFall::Take(int64_t step, double value, double sigma) {
  constexpr double kSigmas = 4, kBack = 0.25;
  level_.Take(value);
  newest_.emplace_back(step, value);
  if (newest_.size() > kTen) newest_.pop_front();
  ++points_;
  if (!level_.known()) return false;
  const double level = level_.level();
  if (std::isnan(start_)) start_ = level;
  best_ = std::max(best_, level);
  const double down = best_ - level;
  const bool beyond_noise = down > kSigmas * sigma && down > 0;
  // Tasks of unequal difficulty in turns: a fall is judged once it lasts longer than those before.
  const uint64_t enough = std::max<uint64_t>({kTen, points_ / 8, 2 * longest_});
  // A fall that came back sets how long the next one must last.
  fallen_ = std::max(fallen_, half_.count);
  if (fallen_ > 0 && (!beyond_noise || down < kBack * reached())) {
    longest_ = std::max(longest_, std::exchange(fallen_, 0));
    part_ = 0;
  }
  const auto falls = [&](double part, PointsInARow* row) {
    const bool below = beyond_noise && down >= part * reached();
    row->Take(below, below ? FirstBelow(best_ - part * reached()) : step, 0);
    if (row->count < enough || part_ >= part) return false;
    part_ = part;
    onset_ = half_.first;
    return true;
  };
  const bool half = falls(kHalf, &half_);
  return falls(kMost, &most_) || half;
}

// The onset: the first point at or below the bound after which almost all points are.
int64_t RewardFall::FirstBelow(double bound) const {
  constexpr size_t kMostAbove = 5;  // at most a fifth of those after it
  for (size_t i = 0; i < newest_.size(); ++i) {
    const auto above = std::count_if(newest_.begin() + static_cast<ptrdiff_t>(i), newest_.end(),
                                     [&](const auto& point) { return point.second > bound; });
    if (newest_[i].second <= bound && kMostAbove * static_cast<size_t>(above) <= newest_.size() - i)
      return newest_[i].first;
  }
  return newest_.back().first;
}

bool RewardCourse::Take(int64_t step, double value) {
  if (!std::isfinite(value)) return false;
  if (++points_ > 1) differences_ += std::fabs(value - newest_);
  equal_ = value == newest_ ? equal_ + 1 : 0;
  highest_ = std::max(highest_, value);
  newest_ = value;
  level_.Take(value);
  const bool fell = fall_.Take(step, value, sigma());
  if (!level_.known()) return fell;
  const double level = level_.level();
  if (std::isnan(start_)) start_ = level;
  if (level > best_) {
    best_ = level;
    best_step_ = step;
  }
  return fell;
}

double RewardCourse::sigma() const {
  constexpr double kMeanOfDifference = 1.1283791670955126;  // E|x - y| of two standard normals
  if (points_ < 2) return 0;
  return differences_ / static_cast<double>(points_ - 1) / kMeanOfDifference;
}

bool RewardCourse::fell_by(double part) const {
  if (!known()) return false;
  // The rise is measured from the first level, or from 0 for a reward that never rose.
  const double rose = std::max(best_ - start_, std::fabs(best_));
  const double down = best_ - level_.level();
  return down > part * rose && down > 3 * sigma();
}

bool RewardCourse::at_its_best() const {
  if (!known()) return false;
  return best_ - start_ > 3 * sigma() && best_ - level_.level() <= 2 * sigma();
}

bool RewardCourse::solved() const {
  // All of the newest points are near the highest value, and half of them equal it: a bounded
  // reward.
  constexpr uint64_t kTen = 10;
  constexpr double kNear = 0.05;
  if (points_ < kTen || !(highest_ > start_)) return false;
  const std::deque<double>& newest = fall_.newest();
  const double near = highest_ - kNear * (highest_ - start_);
  return std::all_of(newest.begin(), newest.end(), [&](double x) { return x >= near; }) &&
         2 * std::count(newest.begin(), newest.end(), highest_) >= static_cast<long>(kTen);
}

bool EntropyCourse::Take(int64_t step, double value) {
  if (!std::isfinite(value)) return false;
  ++points_;
  positive_ = positive_ && value >= 0;
  if (std::isnan(start_)) {
    first_.push_back(value);
    if (first_.size() == kFirst) {
      start_ = MedianOf(first_);
      first_ = {};
    }
    return false;
  }
  level_.Take(value);
  // The onset is the first point of the stretch below the bound that lasts.
  const bool low = value < kPart * start_;
  if (!low) onset_ = 0;
  if (low && onset_ == 0) onset_ = step;
  const bool collapsed =
      positive_ && start_ > 0 && level_.known() && onset_ != 0 && level_.level() < kPart * start_;
  return collapsed && !std::exchange(collapsed_, true);
}

bool ReferenceCourse::Take(int64_t step, double value) {
  if (!std::isfinite(value)) return false;
  zeros_ += value == 0 ? 1 : 0;
  if (points_ > 0) differences_ += std::fabs(value - newest_);
  if (points_++ < 10) early_ = std::max(early_, value);
  newest_ = value;
  level_.Take(value);
  const double noise = differences_ / static_cast<double>(points_);
  negative_.Take(level_.level() < -std::max(1.0, 3 * noise), step, kNegative);
  // Of a long run every second kept point is dropped, so that memory is bounded.
  if (++skipped_ < stride_) return false;
  skipped_ = 0;
  if (kept_.size() == kMost) {
    for (size_t i = 0; i < kMost / 2; ++i) kept_[i] = kept_[2 * i];
    kept_.resize(kMost / 2);
    stride_ *= 2;
  }
  kept_.push_back({step, value});
  if (grown_ || points_ < kFewest) return false;
  const bool grows = Grows(kept_.size() / 4, kQuarterFolds) || Grows(kept_.size() / 2, kHalfFolds);
  growing_ = grows ? growing_ + 1 : 0;
  grown_ = growing_ >= kInARow;
  return grown_;
}

double ReferenceCourse::MedianAt(size_t end) const {
  std::array<double, kOfLevel> values;
  for (size_t i = 0; i < values.size(); ++i) values[i] = kept_[end - 1 - i].value;
  return MedianOf(values);
}

bool ReferenceCourse::Grows(size_t window, double folds) {
  const size_t now = kept_.size(), before = now - window;
  if (window < 3 || before < kOfLevel) return false;
  const double level = MedianAt(now), past = MedianAt(before);
  const double floor = early_ >= 5 ? kSequenceFloor : kFloor;
  if (!(level >= floor) || !(past > 0)) return false;
  // A level that was reached before is not an explosion, because each renewal of the reference
  // model resets the divergence, which then rises again.
  for (size_t end = kOfLevel; end <= before; ++end) {
    if (level < kAbovePeaks * MedianAt(end)) return false;
  }
  folds_ = std::log(level / past);
  onset_ = kept_[before - 1].step;
  return folds_ >= folds;
}

}  // namespace plumbline::analysis
