#include "analysis/metrics/logged_metric.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace plumbline::analysis {
namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
// Of the points, this share may lack the reading, or differ from it (a skipped step, a restart).
constexpr size_t kOneIn = 10;

bool IsUsable(double value) { return std::isfinite(value) && value > 0; }

double UsableOr(std::optional<double> value) {
  return value && IsUsable(*value) ? *value : kNotMeasured;
}

// Returns the number of decimals of the value, at most one more than `most`.
int DecimalsOf(double value, int most) {
  double scaled = value;
  for (int decimals = 0; decimals <= most; ++decimals, scaled *= 10)
    if (std::fabs(scaled - std::round(scaled)) <= 1e-9 * scaled) return decimals;
  return most + 1;
}

}  // namespace

void LoggedMetric::Take(int64_t step, double logged, int64_t since,
                        const MeasuredValues& measured) {
  if (!IsUsable(logged)) return;
  Point point{step, logged, {}};
  point.measured = {UsableOr(measured.At(step)), UsableOr(measured.At(step - 1)),
                    UsableOr(measured.At(step + 1)), UsableOr(measured.MeanOf(step, since)),
                    UsableOr(measured.MeanOf(step - 1, since))};
  points_.push_back(point);
  if (points_.size() > kNewest) points_.pop_front();
}

MetricVerdict LoggedMetric::Judge(bool may_stand) const {
  if (points_.size() < kFewest) return {};
  if (!(HalfUnit() <= kCoarseFrom * points_.back().logged)) return At(0, MetricState::kCoarse);
  // The readings are tried in their order; a right one is preferred to a clip, a clip to a factor.
  MetricVerdict out;
  for (size_t r = 0; r < kReadings; ++r)
    if (IsEqual(r)) return At(r, MetricState::kEqual);
  for (size_t r = 0; r < kReadings; ++r)
    if (IsClipped(r, &out)) return out;
  for (size_t r = 0; r < kReadings; ++r)
    if (IsFactor(r, may_stand, &out)) return out;
  bool known = false, moved = false;
  for (size_t r = 0; r < kReadings; ++r) {
    known |= IsKnown(r);
    moved |= IsKnown(r) && Moved(r);
  }
  // No reading explains the values.
  if (!known) return {};
  return At(0, moved ? MetricState::kUnrelated : MetricState::kAlike);
}

MetricVerdict LoggedMetric::At(size_t reading, MetricState state) const {
  MetricVerdict out;
  out.state = state;
  out.reading = static_cast<Reading>(reading);
  out.points = points_.size();
  out.first = points_.front().step;
  out.last = points_.back().step;
  out.logged = points_.back().logged;
  out.measured = points_.back().measured[reading];
  return out;
}

bool LoggedMetric::IsKnown(size_t reading) const {
  const auto known =
      static_cast<size_t>(std::count_if(points_.begin(), points_.end(), [&](const Point& p) {
        return !std::isnan(p.measured[reading]);
      }));
  return known >= kFewest && kOneIn * (points_.size() - known) <= points_.size();
}

double LoggedMetric::RangeOf(size_t reading) const {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const Point& p : points_) {
    if (std::isnan(p.measured[reading])) continue;
    low = std::min(low, p.measured[reading]);
    high = std::max(high, p.measured[reading]);
  }
  return high / low - 1;
}

bool LoggedMetric::Moved(size_t reading) const {
  const double room = 5 * RoomFor(points_.back().logged) / points_.back().logged;
  return RangeOf(reading) >= std::max(kMovedFrom, room);
}

double LoggedMetric::HalfUnit() const {
  constexpr int kMost = 6;
  int decimals = 0;
  for (const Point& p : points_) decimals = std::max(decimals, DecimalsOf(p.logged, kMost));
  return decimals > kMost ? 0 : 0.5 * std::pow(10.0, -decimals);
}

bool LoggedMetric::IsEqual(size_t reading) const {
  if (!IsKnown(reading)) return false;
  const auto differ = std::count_if(points_.begin(), points_.end(), [&](const Point& p) {
    return !(std::fabs(p.logged - p.measured[reading]) <= RoomFor(p.logged));
  });
  return kOneIn * static_cast<size_t>(differ) <= points_.size();
}

// At least kFewest points are below the measured value, all of them at the largest logged value;
// the others equal the measured value.
bool LoggedMetric::IsClipped(size_t reading, MetricVerdict* out) const {
  if (!IsKnown(reading) || !Moved(reading)) return false;
  double limit = 0;
  for (const Point& p : points_) limit = std::max(limit, p.logged);
  size_t below = 0, others = 0;
  for (const Point& p : points_) {
    if (std::isnan(p.measured[reading])) continue;
    const double room = RoomFor(p.logged);
    if (std::fabs(p.logged - p.measured[reading]) <= room) continue;
    const bool cut = p.logged < p.measured[reading] && std::fabs(p.logged - limit) <= room;
    ++(cut ? below : others);
  }
  if (below < kFewest || kOneIn * others > points_.size()) return false;
  *out = At(reading, MetricState::kClipped);
  out->limit = limit;
  return true;
}

// The factor is the median ratio. A point without a measured value (NaN) is not counted as apart.
bool LoggedMetric::IsFactor(size_t reading, bool may_stand, MetricVerdict* out) const {
  if (!IsKnown(reading) || !(may_stand || Moved(reading))) return false;
  std::vector<double> logs;
  for (const Point& p : points_)
    if (!std::isnan(p.measured[reading])) logs.push_back(std::log(p.logged / p.measured[reading]));
  const auto middle = logs.begin() + static_cast<std::ptrdiff_t>(logs.size() / 2);
  std::nth_element(logs.begin(), middle, logs.end());
  const double factor = std::exp(*middle);
  const auto apart = std::count_if(points_.begin(), points_.end(), [&](const Point& p) {
    return std::fabs(p.logged - factor * p.measured[reading]) > RoomFor(p.logged);
  });
  if (kOneIn * static_cast<size_t>(apart) > points_.size() ||
      !(std::fabs(std::log(factor)) > kFactorFrom))
    return false;
  *out = At(reading, MetricState::kFactor);
  out->factor = factor;
  out->range = RangeOf(reading);
  return true;
}

}  // namespace plumbline::analysis
