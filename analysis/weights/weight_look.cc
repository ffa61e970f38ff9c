#include "analysis/weights/weight_look.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "analysis/weights/upper_median.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr double kAdamEpsilon = 1e-8;     // a gradient far below it has no effect
constexpr double kLargestEpsilon = 1e-6;  // largest value in use
// sqrt(1 - 0.999^t) / (1 - 0.9^t) is above 0.15 for every t: a lower bound, rounded down, of the
// factor by which Adam's corrections reduce a step.
constexpr double kCorrections = 0.1;

constexpr size_t kFewestOthers = 4;  // gradients that have a median
// Share of the median that rounding may leave of a gradient that is 0.
constexpr double kRounding = 0x1p-20, kRounding16 = 0x1p-12;

double MedianOfMany(std::vector<double> values) {
  return values.size() < kFewestOthers ? 0 : UpperMedian(std::move(values));
}

bool IsFinite(const v1::TensorSummary& s) { return s.nan() + s.pos_inf() + s.neg_inf() == 0; }

}  // namespace

void ObservedWeight::Take(std::string_view op, const Item& item) {
  const v1::TensorState& state = item.evidence->tensor();
  if (!state.has_summary()) return;
  const v1::TensorSummary& s = state.summary();
  const bool finite = IsFinite(s);
  if (state.role() == "gradient") {
    poisoned |= !finite;
    gradient |= finite && s.zero() < s.count() && s.amax() > 0;
    gradient_amax = std::max(gradient_amax, finite ? s.amax() : 0);
  } else if (state.role() == "weight") {
    if (observed && rank != item.source->rank()) return;
    observed = true;
    weight = Digest{s.digest_low(), s.digest_high()};
    rank = item.source->rank();
    dtype = static_cast<DType>(state.dtype());
    count = s.count();
    one_value = s.count() <= 1 || (s.min() == s.max() && s.amax() == std::fabs(s.max()));
    weight_amax = s.amax();
    if (!finite || (s.digest_low() == 0 && s.digest_high() == 0)) weight.reset();
    poisoned |= !finite;
  } else if (state.role().empty()) {
    TakeMoment(op, s, item.source->rank());
  }
}

void ObservedWeight::TakeMoment(std::string_view op, const v1::TensorSummary& s, uint32_t from) {
  const bool first = op == "exp_avg" || op == "momentum_buffer";
  if (!first && op != "exp_avg_sq") return;
  if (!IsFinite(s)) {
    poisoned = true;
    return;
  }
  if (!first) {
    if (!square_amax) square_amax = s.amax();
    return;
  }
  if (moment && moment_rank != from) return;
  moment = Digest{s.digest_low(), s.digest_high()};
  moment_rank = from;
  moment_amax = s.amax();
  momentum = op == "momentum_buffer";
}

double ObservedWeight::LeastStep(double at_rate) const {
  if (gradient) return at_rate * std::min(1.0, gradient_amax / kAdamEpsilon);
  if (momentum) return at_rate * moment_amax;
  // Without a second moment: a step of the moment's sign (Lion), or of a scaled moment.
  if (!square_amax) return at_rate * std::min(1.0, moment_amax);
  return at_rate * kCorrections * moment_amax / (std::sqrt(*square_amax) + kLargestEpsilon);
}

void UsualGradients::Take(const std::map<std::string, ObservedWeight>& weights) {
  std::vector<double> gradients, moments;
  for (const auto& [name, seen] : weights) {
    if (seen.gradient) gradients.push_back(seen.gradient_amax);
    if (seen.moment && seen.moment_amax > 0) moments.push_back(seen.moment_amax);
  }
  gradient_ = MedianOfMany(std::move(gradients));
  moment_ = MedianOfMany(std::move(moments));
}

bool UsualGradients::IsRounding(const ObservedWeight& weight) const {
  const double share = DTypeSize(weight.dtype) < 4 ? kRounding16 : kRounding;
  return weight.gradient ? weight.gradient_amax <= share * gradient_
                         : weight.moment_amax <= share * moment_;
}

bool ObservedWeight::Moves(double at_rate) const {
  return !IsFloating(dtype) || LeastStep(at_rate) >= UlpOf(weight_amax, dtype);
}

bool ObservedWeight::IsLostIfPlain(double at_rate) const {
  return IsFloating(dtype) && gradient && at_rate * gradient_amax < UlpOf(weight_amax, dtype) / 2;
}

}  // namespace plumbline::analysis
