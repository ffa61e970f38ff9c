#include "analysis/weights/zero_course.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace plumbline::analysis {
namespace {

// Returns true if a decay explains the change. A decay multiplies each element by one factor, so
// the largest and the mean magnitude shrink alike, up to half a unit in the last place per step. If
// that is a large part of the change (formats of 16 bits or fewer), every change counts as caused
// by a gradient.
bool MovesAlike(double amax, double l1, int64_t steps) {
  constexpr double kLastPlace = 0x1p-24, kPart = 0.05;
  const double a = std::log(amax), b = std::log(l1);
  return std::fabs(a - b) <= kPart * std::fabs(b) + kLastPlace * static_cast<double>(steps + 1) &&
         b <= kLastPlace * static_cast<double>(steps + 1);
}

// std::lgamma writes a global variable.
double LogGamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}

}  // namespace

void ZeroCourse::TakeNonZero(int64_t step) {
  ++steps;
  if (zeros > 0) {
    longest = std::max(longest, step - zeros_first);
    if (moved) {
      before += zeros;
      zero_before += zeros;
    }
  }
  if (!std::exchange(moved, true)) moved_first = step;
  ++before;
  zeros = 0;
}

void ZeroCourse::TakeZero(int64_t step) {
  ++steps;
  if (zeros++ == 0) zeros_first = step;
}

void ZeroCourse::TakeWeight(int64_t step, const ZeroLook& weight) {
  if (weight.poisoned || weight.digest == 0) return;
  if (weight_step >= 0 && weight.digest != weight_digest) {
    const bool numbers = weight.amax > 0 && weight_amax > 0 && weight.l1 > 0 && weight_l1 > 0;
    const bool decay =
        weight.fine && numbers &&
        MovesAlike(weight.amax / weight_amax, weight.l1 / weight_l1, step - weight_step);
    if (!decay) used_step = step;
  }
  weight_step = step;
  weight_digest = weight.digest;
  weight_amax = weight.amax;
  weight_l1 = weight.l1;
}

// With a = z + 1/2 and b = n - z + 1/2: product over i < m of (a + i) / (a + b + i).
double ZeroCourse::LogChanceOfRow() const {
  const double a = static_cast<double>(zero_before) + 0.5;
  const double both = static_cast<double>(before) + 1, m = static_cast<double>(zeros);
  return LogGamma(a + m) - LogGamma(a) - LogGamma(both + m) + LogGamma(both);
}

// A tensor has one first row of zeros. For later rows, each observation may be the last of one.
double ZeroCourse::LogFalseAlarm(uint64_t tensors) const {
  const uint64_t looks = std::max(tensors, uint64_t{1}) * (mixed() ? steps : 1);
  return std::log(kFalseAlarm / static_cast<double>(looks));
}

bool ZeroCourse::Stopped(int64_t step, uint64_t tensors, int64_t switched) const {
  if (!moved) return false;
  const bool always = before >= kSteps && !mixed();
  if (zeros < (always ? kFewSteps : kSteps)) return false;
  const int64_t span = step - zeros_first;
  if (span <= 2 * longest) return false;
  // Observations of consecutive steps are hardly independent: few of them count little compared
  // with a long past.
  if (zeros < kSteps && zeros_first - moved_first < 4 * span) return false;
  if (switched >= zeros_first && span < kSpan) return false;
  return LogChanceOfRow() <= LogFalseAlarm(tensors);
}

bool ZeroCourse::NeverUsed(int64_t step, uint64_t tensors, double worst) const {
  if (before >= kSteps || mixed() || zeros < kSteps) return false;
  const int64_t since = std::max(zeros_first, used_step);
  if (step - since < kSpan || step - zeros_first <= 2 * longest) return false;
  if (!(worst > 0)) return true;
  return static_cast<double>(zeros) * std::log(worst) <= LogFalseAlarm(tensors);
}

}  // namespace plumbline::analysis
