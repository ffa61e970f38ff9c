#include "analysis/statistics/bias_stream.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/real.h"

namespace plumbline::analysis {
namespace {

// A larger error is not the rounding of any format, and its square would make the variance
// infinite.
constexpr double kMostError = 0x1p400;
constexpr double kHuge = 0x1p300;  // a product beyond this, or below its inverse, is rescaled to 1

bool Measurable(double e) { return std::fabs(e) <= kMostError; }  // false for NaN

size_t IndexOf(BiasSide side) { return side == BiasSide::kTooLarge ? 1 : 0; }

}  // namespace

BiasStream::BiasStream(double alpha)
    : alpha_(alpha),
      threshold_(alpha > 0 ? kProducts / alpha : std::numeric_limits<double>::infinity()) {}

void BiasStream::Add(std::span<const double> errors, std::optional<uint64_t> population,
                     uint64_t left_out) {
  const uint64_t before = count_;
  const double drawn = static_cast<double>(errors.size()) + static_cast<double>(left_out);
  const double judged_share = drawn > 0 ? static_cast<double>(errors.size()) / drawn : 1;
  // If the population is not known, it counts as infinite.
  const double elements = population ? std::round(static_cast<double>(*population) * judged_share)
                                     : std::numeric_limits<double>::infinity();
  if (!population && !errors.empty()) population_unknown_ = true;
  Drawn sums{};
  for (size_t i = 0; i < errors.size(); ++i) {
    if (!Measurable(errors[i])) {
      ++refused_;
      continue;
    }
    ++count_;
    const double delta = errors[i] - mean_;
    mean_ += delta / static_cast<double>(count_);
    squares_ += delta * (errors[i] - mean_);
    Bet(errors[i], sums, elements - static_cast<double>(i), elements);
    Look();
  }
  if (count_ == before) return;
  alike_ += static_cast<double>(count_ - before);
  ++steps_;
  MeasureStep(errors);
}

void BiasStream::Add(const SumErrors& errors, std::optional<uint64_t> population) {
  for (double e : errors.zero_sum) {
    if (!Measurable(e)) continue;
    ++zero_sums_;
    zero_squares_ += e * e;
  }
  rounded_ += errors.judged.size() + errors.zero_sum.size();
  misrounded_ += errors.misrounded;
  Add(errors.judged, population, errors.zero_sum.size() + errors.aside);
  // Add counted them as independent samples.
  alike_ += std::max(0.0, errors.alike - static_cast<double>(errors.judged.size()));
}

double FewestSamples(double alpha) {
  const double most = std::log(1 + .7 * (1 - kBiasBudgetUlp) / (1 + kBiasBudgetUlp));
  return std::log(40 / alpha) / most;
}

double BiasStream::effective_count() const {
  const auto n = static_cast<double>(count_);
  return count_ > 0 ? n * n / alike_ : 0;
}

// Multiplies one sample's factors. `left` is the number of elements of the population not yet
// drawn, including this one.
void BiasStream::Bet(double e, Drawn& drawn, double left, double population) {
  size_t product = 0;
  size_t stream = 0;
  for (const double sign : {-1.0, 1.0}) {
    for (const double scale : kScales) {
      const double x = std::clamp(sign * e / scale, -1.0, 1.0);
      const double b = kBiasBudgetUlp / scale;
      double budget = b;
      if (left >= 1 && std::isfinite(population)) {
        budget = std::max(b, (population * b - drawn[stream]) / left);
      }
      drawn[stream++] += x;
      const double gain = (x - budget) / (1 + budget);  // >= -1, so every factor is >= 1 - bet > 0
      for (const double bet : kBets) {
        Scaled& p = products_[product++];
        p.m *= 1 + bet * gain;
        if (p.m > kHuge || p.m < 1 / kHuge) {
          int exponent = 0;
          p.m = std::frexp(p.m, &exponent);
          p.exponent += exponent;
        }
      }
    }
  }
}

void BiasStream::Look() {
  if (!std::isfinite(threshold_) || (side_alarmed_[0] && side_alarmed_[1])) return;
  std::array<double, 2> wealth{};  // times kProducts
  for (size_t i = 0; i < products_.size(); ++i) {
    const Scaled& p = products_[i];
    if (p.exponent < -2000) continue;  // far below the smallest double
    const int exponent = static_cast<int>(std::min<int64_t>(p.exponent, 4000));
    wealth[i / (kProducts / 2)] += exponent == 0 ? p.m : std::ldexp(p.m, exponent);
  }
  for (size_t side : {0u, 1u}) side_alarmed_[side] |= wealth[side] >= threshold_;
  if (alarm_sample_ != 0 || !(wealth[0] + wealth[1] >= threshold_)) return;
  alarm_sample_ = count_;
  alarm_step_ = steps_ + 1;
}

void BiasStream::MeasureStep(std::span<const double> errors) {
  double n = 0;
  double sum = 0;
  if (steps_ == 1) origin_ = mean_;
  for (double e : errors) {
    if (!Measurable(e)) continue;
    n += 1;
    sum += e - origin_;
  }
  step_ss_ += sum * sum;
  step_sn_ += sum * n;
  step_nn_ += n * n;
}

bool BiasStream::alarmed(BiasSide side) const {
  return side != BiasSide::kNone && side_alarmed_[IndexOf(side)];
}

double BiasStream::LogMean(size_t first, size_t last) const {
  double largest = -std::numeric_limits<double>::infinity();
  std::array<double, kProducts> logs{};
  for (size_t i = first; i < last; ++i) {
    logs[i] =
        std::log(products_[i].m) + static_cast<double>(products_[i].exponent) * std::numbers::ln2;
    largest = std::max(largest, logs[i]);
  }
  double sum = 0;
  for (size_t i = first; i < last; ++i) sum += std::exp(logs[i] - largest);
  return largest + std::log(sum / static_cast<double>(last - first));
}

double BiasStream::log_wealth() const { return LogMean(0, kProducts); }

double BiasStream::log_wealth(BiasSide side) const {
  const size_t half = kProducts / 2;
  const size_t first = IndexOf(side) * half;
  return side == BiasSide::kNone ? log_wealth() : LogMean(first, first + half);
}

double BiasStream::mean() const { return count_ > 0 ? mean_ : kNaN; }

double BiasStream::sd() const {
  return count_ > 1 ? std::sqrt(squares_ / static_cast<double>(count_ - 1)) : kNaN;
}

double BiasStream::half_width() const {
  if (count_ < 2) return kNaN;
  const auto n = static_cast<double>(count_);
  double error = sd() / std::sqrt(effective_count());
  if (steps_ > 1) {
    const double shift = mean_ - origin_;
    const double between = step_ss_ - 2 * shift * step_sn_ + shift * shift * step_nn_;
    const auto t = static_cast<double>(steps_);
    error = std::max(error, std::sqrt(std::max(0.0, between) * t / (t - 1)) / n);
  }
  return kBiasDeviations * error;
}

double BiasStream::rms() const {
  const auto n = static_cast<double>(count_ + zero_sums_);
  if (n == 0) return kNaN;
  const auto judged = static_cast<double>(count_);
  return std::sqrt((squares_ + judged * mean_ * mean_ + zero_squares_) / n);
}

double BiasStream::misround_rate() const {
  return rounded_ > 0 ? static_cast<double>(misrounded_) / static_cast<double>(rounded_) : kNaN;
}

BiasSide BiasStream::interval_side() const {
  if (low() > kBiasBudgetUlp) return BiasSide::kTooLarge;
  if (high() < -kBiasBudgetUlp) return BiasSide::kTooSmall;
  return BiasSide::kNone;
}

v1::Level BiasStream::interval_level() const {
  const BiasSide s = interval_side();
  if (s == BiasSide::kNone) return v1::LEVEL_UNSPECIFIED;
  const double nearer = s == BiasSide::kTooLarge ? low() : -high();
  return nearer >= 1 ? v1::LEVEL_ERROR : v1::LEVEL_WARNING;
}

BiasSide BiasStream::side() const {
  const BiasSide s = interval_side();
  return alarmed(s) && effective_count() >= FewestSamples(alpha_) ? s : BiasSide::kNone;
}

v1::Level BiasStream::level() const {
  return side() == BiasSide::kNone ? v1::LEVEL_UNSPECIFIED : interval_level();
}

}  // namespace plumbline::analysis
