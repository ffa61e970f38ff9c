#include "analysis/rates/rate_course.h"

#include <algorithm>
#include <utility>

#include "analysis/rates/line_fit.h"

namespace plumbline::analysis {
namespace {

constexpr double kExact = 0.01;      // relative error up to which a slope is used
constexpr double kWhole = 0.02;      // tolerance for an integer multiple
constexpr double kMoves = 1e-4;      // of the maximum, over the fitted points
constexpr double kContinues = 0.02;  // share of the maximum: a resume continues the course if it
                                     // begins within this distance
constexpr uint64_t kMostTimes = 1 << 20;

// Converts the points for FitSlope.
std::vector<std::pair<double, double>> Pairs(const std::vector<RatePoint>& points) {
  std::vector<std::pair<double, double>> pairs;
  for (const RatePoint& p : points) pairs.emplace_back(static_cast<double>(p.step), p.rate);
  return pairs;
}

// Returns true if the slope is known to a hundredth.
bool States(const SlopeAt& slope) {
  return std::isfinite(slope.slope) && slope.error <= kExact * std::fabs(slope.slope);
}

double HighestOf(const std::vector<RatePoint>& points) {
  double highest = 0;
  for (const RatePoint& p : points) highest = std::max(highest, p.rate);
  return highest;
}

// Returns true if the rate fell below a quarter of its maximum and rose to half of it again,
// without a resume.
bool IsCyclic(const std::vector<RatePoint>& points) {
  double highest = 0;
  bool fell = false;
  for (const RatePoint& p : points) {
    highest = std::max(highest, p.rate);
    fell |= p.rate < highest / 4;
    if (fell && p.rate >= highest / 2) return true;
  }
  return false;
}

// Returns true if the rate may be at the point where a schedule with warm restarts begins again.
// The curve bends (the last steps of a cosine are as 5 to 3, of a short one as 3 to 2; one step
// earlier as 7 to 5), or a line reaches 0 with the next step. With fewer than 8 points it is not
// known.
bool MayBeAtBottom(const std::vector<RatePoint>& points) {
  constexpr std::ptrdiff_t kFew = 8;
  constexpr double kBends = 1.45;
  const auto highest =
      std::max_element(points.begin(), points.end(),
                       [](const RatePoint& a, const RatePoint& b) { return a.rate < b.rate; });
  if (points.end() - highest < kFew) return true;
  const double first = (points.end() - 3)->rate, second = (points.end() - 2)->rate;
  const double last = points.back().rate, step = second - last;
  if (step == 0 && first == second)  // the rate is constant; if it has been constant for long, the
                                     // schedule is not cyclic
    return std::any_of(points.end() - kFew, points.end(),
                       [&](const RatePoint& p) { return p.rate != last; });
  return !(step > 0) || first - second >= kBends * step || last <= 1.5 * step;
}

}  // namespace

void RateCourse::Take(uint32_t attempt, uint32_t world_size, int64_t step, double rate) {
  const bool first = highest_.rate < 0;
  if (first) {
    first_ = {step, rate};
    attempt_ = attempt;
  }
  if (attempt != attempt_) Resume(step);
  attempt_ = attempt;
  world_ = world_size;
  if (++points_ == 1) Begin({step, rate});
  if (first || rate != rest_.rate) {
    left_ = rest_;
    left_for_ = first || points_ == 1 ? 0 : at_rest_;
    rest_ = {step, rate};
    at_rest_ = 0;
  }
  ++at_rest_;
  if (rate > highest_.rate * (1 + 1e-9) || first) {
    highest_ = {step, rate};
    since_highest_ = 0;
  } else {
    ++since_highest_;
  }
  Keep({step, rate});
}

// Removes the points after the step, which this attempt replaces.
void RateCourse::Resume(int64_t step) {
  resumed_ = PointsBefore(step);
  std::erase_if(kept_, [&](const RatePoint& p) { return p.step >= step; });
  recent_.clear();
  skipped_ = 0;
  world_before_ = world_;
  points_ = 0;
  at_rest_ = 0;
}

void RateCourse::Begin(RatePoint point) {
  begun_ = point;
  may_rewarm_ = !resumed_.empty() && point.rate <= kRewarmsFrom * resumed_.back().rate &&
                resumed_.back().rate < kRewarmsBelow * HighestOf(resumed_);
}

// Keeps all of the newest points, and each 2^n-th of the others, so that the whole course has
// bounded memory.
void RateCourse::Keep(RatePoint point) {
  recent_.push_back(point);
  if (recent_.size() > 2 * kRecent) recent_.erase(recent_.begin(), recent_.begin() + kRecent);
  if (skipped_++ % stride_ != 0) return;
  kept_.push_back(point);
  if (kept_.size() < kKept) return;
  size_t to = 0;
  for (size_t from = 0; from < kept_.size(); from += 2) kept_[to++] = kept_[from];
  kept_.resize(to);
  stride_ *= 2;
}

// Returns the whole course before the step. If the step is recent, the course is exact near it.
std::vector<RatePoint> RateCourse::PointsBefore(int64_t step) const {
  std::vector<RatePoint> points;
  const int64_t exact = recent_.empty() ? step : recent_.front().step;
  for (const RatePoint& p : kept_) {
    if (p.step < step && p.step < exact) points.push_back(p);
  }
  for (const RatePoint& p : recent_) {
    if (p.step < step) points.push_back(p);
  }
  return points;
}

// Tests at the first point of a resume.
std::optional<RateRestart> RateCourse::Restart() const {
  if (points_ != 1 || resumed_.empty()) return std::nullopt;
  const double highest = HighestOf(resumed_);
  const RatePoint& before = resumed_.back();
  const RatePoint& after = recent_.back();
  // Between kept points the rate may have been higher, so both neighbours must be low.
  const RatePoint& one_before = resumed_[resumed_.size() < 2 ? 0 : resumed_.size() - 2];
  const double low = std::max(before.rate, one_before.rate);
  if (!(low < highest / 2) || !(after.rate >= 2 * low)) return std::nullopt;
  if (!(after.rate >= highest / 2) || IsCyclic(resumed_) || MayBeAtBottom(resumed_))
    return std::nullopt;
  return RateRestart{highest, before, after};
}

std::optional<RateAnew> RateCourse::Anew() const {
  constexpr double kLowest = 0.02;  // of the maximum: cosines end there and print one value
  if (at_rest_ != 1 || left_for_ < kFloorFor || recent_.empty()) return std::nullopt;
  const double floor = left_.rate, highest = highest_.rate;
  if (!(recent_.back().rate >= 4 * floor) || highest_.step >= left_.step) return std::nullopt;
  if (!(floor >= kLowest * highest && floor <= highest / 4)) return std::nullopt;
  return RateAnew{highest, left_, left_for_, recent_.back()};
}

std::optional<RateRewarmed> RateCourse::Rewarmed() const {
  if (!may_rewarm_ || recent_.empty() || points_ < 2 || points_ > kRewarmsWithin)
    return std::nullopt;
  const RatePoint& before = resumed_.back();
  if (!(recent_.back().rate >= kRewarmsTo * before.rate)) return std::nullopt;
  if (IsCyclic(resumed_)) return std::nullopt;
  return RateRewarmed{HighestOf(resumed_), before, begun_, recent_.back()};
}

std::optional<RateLeap> RateCourse::Leap() const {
  if (at_rest_ != 1 || left_for_ < kLeapsAfter || recent_.empty() || !(left_.rate > 0))
    return std::nullopt;
  const RatePoint& now = recent_.back();
  if (!(now.rate >= kLeap * left_.rate) || now.step != highest_.step) return std::nullopt;
  return RateLeap{left_, now};
}

// Returns the ratio of the slopes on both sides of a resume that continues, if it is an integer.
std::optional<RateFaster> RateCourse::Faster() const {
  // Few points, so that a fast schedule is still straight.
  constexpr uint64_t kLooks[] = {kFirstLook, 32, 64, kLastLook};
  if (resumed_.size() < kLooks[0]) return std::nullopt;
  if (std::find(std::begin(kLooks), std::end(kLooks), points_) == std::end(kLooks))
    return std::nullopt;
  const std::vector<RatePoint> after(recent_.end() - static_cast<int64_t>(points_), recent_.end());
  const size_t few = std::min<size_t>(resumed_.size(), kLooks[1]);
  const std::vector<RatePoint> before(resumed_.end() - static_cast<int64_t>(few), resumed_.end());
  const auto at = static_cast<double>(after.front().step);
  const SlopeAt old_slope = FitSlope(Pairs(before), at), new_slope = FitSlope(Pairs(after), at);
  if (!States(old_slope) || !States(new_slope)) return std::nullopt;
  const double highest = HighestOf(resumed_);
  // A constant rate has no slope.
  const auto span = static_cast<double>(before.back().step - before.front().step);
  if (!(std::fabs(old_slope.slope) * span >= kMoves * highest)) return std::nullopt;
  const double reached =
      before.back().rate + old_slope.slope * (at - static_cast<double>(before.back().step));
  if (!(std::fabs(after.front().rate - reached) <= kContinues * highest)) return std::nullopt;
  const double times = new_slope.slope / old_slope.slope;
  if (!(times >= 2 - 2 * kWhole) || !(times < static_cast<double>(kMostTimes))) return std::nullopt;
  const auto whole = static_cast<uint64_t>(std::llround(times));
  if (!(std::fabs(times - static_cast<double>(whole)) <= kWhole * times) || !Explained(whole))
    return std::nullopt;
  return RateFaster{
      whole, times, old_slope.slope, new_slope.slope, after.front().step, after.back().step};
}

// Returns true if the number of processes explains the multiple: each of them advanced the
// schedule.
bool RateCourse::Explained(uint64_t multiple) const {
  if (world_ <= 1) return true;
  if (world_ % multiple == 0) return true;
  return world_before_ > 0 && world_ == multiple * world_before_;
}

std::optional<int64_t> RateCourse::WarmUp() const {
  if (since_highest_ < kSettled || first_.step > 1) return std::nullopt;
  if (!(first_.rate < highest_.rate / 2)) return std::nullopt;
  return highest_.step;
}

std::optional<RatePoint> RateCourse::Rest() const {
  if (at_rest_ < kSettled || !(rest_.rate <= highest_.rate / 4)) return std::nullopt;
  if (rest_.step <= highest_.step) return std::nullopt;
  return rest_;
}

}  // namespace plumbline::analysis
