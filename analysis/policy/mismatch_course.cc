#include "analysis/policy/mismatch_course.h"

#include <algorithm>
#include <cmath>

namespace plumbline::analysis {
namespace {

constexpr size_t kMostPast = 256;
constexpr uint64_t kMedianEvery = 8;  // number of points

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

MismatchCourse::Event MismatchCourse::Take(const PolicyMetric& metric, int64_t step, double value) {
  const double distance = metric.Distance(value);
  if (std::isnan(distance) || std::isinf(value)) return Event::kNone;
  ++points_;
  newest_ = value;
  const bool known = past_.size() >= kFewestPast;
  const bool far = known && distance > metric.floor && distance > kTimes * median_;
  // A ratio of 0, if all tokens were masked, has an infinite distance.
  const bool ten = metric.limit > 0 && distance >= kTimes * metric.limit;
  const bool side = metric.scale == MismatchScale::kLogRatio && distance > metric.floor;
  Event event = Event::kNone;
  if (own_.Take(far, step, kInARow)) event = Event::kAbovePast;
  if (steady_.Take(side, step, kSteady)) event = Event::kSteady;
  // At the beginning, it is enough if all points so far are beyond the limit.
  const uint64_t enough = limit_.count + 1 == points_ ? kInARow : kBeyondLimit;
  if (limit_.Take(metric.limit > 0 && distance > metric.limit, step, enough))
    event = Event::kAboveLimit;
  if (ten_.Take(ten, step, kInARow)) event = Event::kAboveTenLimits;
  if (!far && std::isfinite(distance)) Remember(distance);
  return event;
}

void MismatchCourse::Remember(double distance) {
  if (++skipped_ >= stride_) {
    skipped_ = 0;
    if (past_.size() == kMostPast) {
      for (size_t i = 0; i < kMostPast / 2; ++i) past_[i] = past_[2 * i];
      past_.resize(kMostPast / 2);
      stride_ *= 2;
    }
    past_.push_back(distance);
  }
  if (std::isnan(median_) || ++stale_ >= kMedianEvery || past_.size() <= kFewestPast) {
    stale_ = 0;
    median_ = MedianOf(past_);
  }
}

int64_t MismatchCourse::onset(Event event) const {
  switch (event) {
    case Event::kAboveLimit:
      return limit_.first;
    case Event::kAboveTenLimits:
      return ten_.first;
    case Event::kSteady:
      return steady_.first;
    default:
      return own_.first;
  }
}

}  // namespace plumbline::analysis
