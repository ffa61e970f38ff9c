#include "analysis/drift/change.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <set>
#include <vector>

namespace plumbline::analysis {
namespace {

std::vector<double> LogSquares(std::span<const DriftPoint> points) {
  double least = std::numeric_limits<double>::infinity();
  for (const DriftPoint& p : points) {
    if (p.mean_square > 0) least = std::min(least, p.mean_square);
  }
  std::vector<double> logs;
  if (!std::isfinite(least)) return logs;
  for (const DriftPoint& p : points)
    logs.push_back(std::log(p.mean_square > 0 ? p.mean_square : least / 2));
  return logs;
}

// Returns the residual sum of squares of the best line over 0, 1, 2, ... `y` has mean 0.
double LineResidual(const std::vector<double>& y) {
  const double n = static_cast<double>(y.size()), middle = (n - 1) / 2;
  double squares = 0, xy = 0, xx = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double x = static_cast<double>(i) - middle;
    squares += y[i] * y[i];
    xy += x * y[i];
    xx += x * x;
  }
  return squares - xy * xy / xx;
}

// Hashes the text and the step with splitmix64. Returns a uniform number in [0, 1).
double HashUniform(std::string_view salt, int64_t step) {
  uint64_t h = 0x9e3779b97f4a7c15 ^ static_cast<uint64_t>(step);
  const auto mix = [&h] {
    h += 0x9e3779b97f4a7c15;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
    h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
    h ^= h >> 31;
  };
  mix();
  for (const char c : salt) {
    h ^= static_cast<unsigned char>(c);
    mix();
  }
  return static_cast<double>(h >> 11) * 0x1p-53;
}

// The mean of several Shiryaev-Roberts statistics, each with the step at which it last started.
class Detector {
 public:
  explicit Detector(size_t statistics) : r_(statistics, 0.0), began_(statistics, 0) {}

  void Advance(size_t i, double e, int64_t step) {
    if (r_[i] < 1) began_[i] = step;
    r_[i] = (r_[i] + 1) * e;
  }
  double mean() const {
    double sum = 0;
    for (const double r : r_) sum += r;
    return sum / static_cast<double>(r_.size());
  }
  int64_t began() const {
    return began_[static_cast<size_t>(std::max_element(r_.begin(), r_.end()) - r_.begin())];
  }

 private:
  std::vector<double> r_;
  std::vector<int64_t> began_;
};

// Takes a step. Returns true at the alarm.
bool Look(const Detector& detector, double run_length, int64_t step, Growth& growth) {
  const double r = detector.mean();
  ++growth.steps;
  if (growth.steps == 1 || r > std::exp(growth.log_largest)) growth.log_largest = std::log(r);
  if (!(r >= run_length)) return false;
  growth.alarmed = true;
  growth.alarm_step = step;
  growth.since_step = detector.began();
  return true;
}

void FillLevels(std::span<const DriftPoint> points, Growth& growth) {
  DriftCell before, after;
  for (const DriftPoint& p : points) {
    if (p.step > growth.alarm_step) break;
    (p.step < growth.since_step ? before : after).Add(p.bounded_square);
  }
  growth.before = before.mean;
  growth.after = after.mean;
}

}  // namespace

namespace {

// Returns, for each split of `y` (mean 0) into its first i values and the rest, the sum of squares
// that the two means explain. The means are head / i and -head / (n - i).
std::vector<double> SplitGains(const std::vector<double>& y) {
  const double n = static_cast<double>(y.size());
  std::vector<double> gains(y.size(), 0);
  double head = 0;
  for (size_t i = 1; i < y.size(); ++i) {
    head += y[i - 1];
    const double k = static_cast<double>(i);
    if (head < 0) gains[i] = head * head * (1 / k + 1 / (n - k));
  }
  return gains;
}

// Sets the range of splits whose likelihood is within a factor of 20 of the best one.
void FillRange(std::span<const DriftPoint> points, const std::vector<double>& gains, double squares,
               double left, StepChange& best) {
  const double n = static_cast<double>(points.size());
  const double most = left * std::pow(20.0, 2 / n);
  best.step_low = best.step_high = best.step;
  for (size_t i = 1; i < points.size(); ++i) {
    if (gains[i] <= 0 || !(squares - gains[i] <= most)) continue;
    best.step_low = std::min(best.step_low, points[i].step);
    best.step_high = std::max(best.step_high, points[i].step);
  }
}

// Returns the jump at `at` of the log of the mean square, relative to tokens with the same log mu.
// If it is not known on both sides, returns HUGE_VAL.
double JumpOfEqualTokens(std::span<const DriftPoint> points, const std::vector<double>& logs,
                         size_t at) {
  DriftCell before, after;
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i].expected_square > 0)
      (i < at ? before : after).Add(logs[i] - std::log(points[i].expected_square));
  }
  return before.count > 0 && after.count > 0 ? after.mean - before.mean : HUGE_VAL;
}

}  // namespace

StepChange FindStepChange(std::span<const DriftPoint> points) {
  constexpr size_t kAside = StepChange::kFewestAside;
  StepChange best;
  best.steps = points.size();
  std::vector<double> y = LogSquares(points);
  if (y.size() < 2 * kAside) return best;
  best.judged = true;
  const std::vector<double> logs = y;
  DriftCell whole;
  for (const double v : y) whole.Add(v);
  for (double& v : y) v -= whole.mean;
  // Tests every split. If splits near the ends were skipped, a jump there would be found one or
  // more steps away, at the edge of the range.
  const std::vector<double> gains = SplitGains(y);
  const auto at = static_cast<size_t>(std::max_element(gains.begin(), gains.end()) - gains.begin());
  if (at == 0) return best;
  double head = 0;
  for (size_t i = 0; i < at; ++i) head += y[i];
  const double n = static_cast<double>(y.size()), k = static_cast<double>(at);
  best.jump = -head / k - head / (n - k);
  const double left = std::max(whole.m2 - gains[at], 0.0);
  const double line = LineResidual(y);
  best.standard_error = std::sqrt(left / (n - 2) * (1 / k + 1 / (n - k)));
  best.residual_share = line > 0 ? left / line : 1;
  best.step = points[at].step;
  best.version = points[at].version;
  FillRange(points, gains, whole.m2, left, best);
  const bool large = best.jump >= std::numbers::ln2 && best.jump >= 6 * best.standard_error &&
                     best.residual_share <= 0.5;
  const bool inside = at >= kAside && at + kAside <= y.size();
  best.other_tokens = large && JumpOfEqualTokens(points, logs, at) < best.jump / 2;
  best.found = large && inside && !best.other_tokens;
  best.at_edge = large && !inside && !best.other_tokens;
  return best;
}

namespace {

// Returns the first index of each stretch between restarts; the first is 0.
std::vector<size_t> Attempts(std::span<const DriftPoint> points) {
  std::vector<size_t> begins = {0};
  for (size_t i = 1; i < points.size(); ++i) {
    if (points[i].attempt != points[i - 1].attempt) begins.push_back(i);
  }
  return begins;
}

double Median(std::vector<double> v) {
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

std::vector<size_t> SuddenFalls(const std::vector<double>& y) {
  std::vector<double> steps;
  for (size_t i = 1; i < y.size(); ++i) steps.push_back(y[i] - y[i - 1]);
  const double middle = Median(steps);
  std::vector<double> away;
  for (const double step : steps) away.push_back(std::fabs(step - middle));
  const double least = *std::min_element(steps.begin(), steps.end());
  const double far = std::min(-4 * 1.4826 * Median(away), least / 2);
  std::vector<size_t> begins = {0};
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] < 0 && steps[i] <= far) begins.push_back(i + 1);
  }
  return begins;
}

double MeanOf(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

// Fits y on the number of steps since each stretch began, and computes the falls of y between
// stretches.
void FitAges(std::span<const DriftPoint> points, std::span<const double> y,
             const std::vector<size_t>& begins, Sawtooth& out) {
  constexpr size_t kEdge = Sawtooth::kFewestBetween;
  double x1 = 0, xx = 0, xy = 0, yy = 0;
  out.smallest_fall = std::numeric_limits<double>::infinity();
  for (size_t stretch = 0; stretch < begins.size(); ++stretch) {
    const size_t begin = begins[stretch];
    const size_t end = stretch + 1 < begins.size() ? begins[stretch + 1] : points.size();
    for (size_t i = begin; i < end; ++i) {
      const double age =
          static_cast<double>(points[i].step) - static_cast<double>(points[begin].step);
      x1 += age;
      xx += age * age;
      xy += age * y[i];
      yy += y[i] * y[i];
    }
    if (begin > 0) {
      const double before = MeanOf(y.subspan(begin - kEdge, kEdge));
      out.smallest_fall = std::min(out.smallest_fall, before - MeanOf(y.subspan(begin, kEdge)));
    }
  }
  const double n = static_cast<double>(points.size());
  const double spread = xx - x1 * x1 / n;  // y has mean 0
  out.slope = xy / spread;
  const double left = std::max(yy - xy * xy / spread, 0.0);
  out.standard_error = std::sqrt(left / (n - 2) / spread);
  out.residual_share = left;
}

}  // namespace

Sawtooth FindSawtooth(std::span<const DriftPoint> points) {
  Sawtooth out;
  std::vector<double> y = LogSquares(points);
  if (y.size() < 2 * StepChange::kFewestAside) return out;
  std::vector<size_t> begins = Attempts(points);
  out.by_attempts = begins.size() > 1;
  if (!out.by_attempts) begins = SuddenFalls(y);
  out.restarts = begins.size() - 1;
  if (out.restarts < (out.by_attempts ? 1 : 2)) return out;
  for (size_t i = 0; i < begins.size(); ++i) {
    const size_t end = i + 1 < begins.size() ? begins[i + 1] : points.size();
    if (end - begins[i] < Sawtooth::kFewestBetween) return out;
  }
  out.judged = true;
  const double mean = MeanOf(y);
  for (double& v : y) v -= mean;
  FitAges(points, y, begins, out);
  const double line = LineResidual(y);
  out.residual_share = line > 0 ? out.residual_share / line : 1;
  // An effect that appears and disappears is a square wave. The line leaves a quarter of its
  // squares.
  const double most = out.by_attempts ? 0.5 : 0.2;
  out.found = out.slope > 0 && out.slope >= 6 * out.standard_error && out.residual_share <= most &&
              out.smallest_fall > 0;
  return out;
}

Growth WatchCeiling(std::span<const DriftPoint> points, double tail_ceiling, double square_ceiling,
                    double run_length) {
  constexpr size_t kBets = 5;
  std::vector<std::pair<double DriftPoint::*, double>> watched;
  if (tail_ceiling > 0) watched.emplace_back(&DriftPoint::tail_share, tail_ceiling);
  if (square_ceiling > 0) watched.emplace_back(&DriftPoint::bounded_square, square_ceiling);
  Growth growth;
  if (watched.empty()) return growth;
  Detector detector(watched.size() * kBets);
  for (const DriftPoint& p : points) {
    for (size_t w = 0; w < watched.size(); ++w) {
      const double excess = p.*watched[w].first / watched[w].second - 1;
      for (size_t b = 0; b < kBets; ++b)
        detector.Advance(w * kBets + b, 1 + std::ldexp(excess, -static_cast<int>(b) - 1), p.step);
    }
    if (Look(detector, run_length, p.step, growth)) break;
  }
  FillLevels(points, growth);
  return growth;
}

Growth WatchRanks(std::span<const DriftPoint> points, std::string_view salt, double run_length) {
  Growth growth;
  Detector detector(1);
  std::vector<double> past;  // earlier values, sorted
  for (const DriftPoint& p : points) {
    const double x = p.bounded_square;
    const auto low = std::lower_bound(past.begin(), past.end(), x);
    const auto high = std::upper_bound(low, past.end(), x);
    const double above = static_cast<double>(past.end() - high);
    const double ties = static_cast<double>(high - low) + 1;
    const double u = 1 - HashUniform(salt, p.step);  // uniform in (0, 1]
    const double rank_p = (above + ties * u) / static_cast<double>(past.size() + 1);
    double e = 0;
    for (const double k : {0.5, 0.25, 0.125}) e += k * std::pow(rank_p, k - 1) / 3;
    detector.Advance(0, e, p.step);
    past.insert(high, x);
    if (Look(detector, run_length, p.step, growth)) break;
  }
  FillLevels(points, growth);
  return growth;
}

Ceilings Calibrate(std::span<const DriftPoint> points) {
  const auto ceiling = [&](double DriftPoint::*rate) {
    DriftCell cell;
    for (const DriftPoint& p : points) cell.Add(p.*rate);
    if (cell.count < 10) return std::numeric_limits<double>::quiet_NaN();
    const double n = static_cast<double>(cell.count);
    return 1.25 * (cell.mean + 3 * std::sqrt(cell.m2 / (n - 1) / n));
  };
  return {ceiling(&DriftPoint::tail_share), ceiling(&DriftPoint::bounded_square)};
}

}  // namespace plumbline::analysis
