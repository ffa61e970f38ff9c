#include "analysis/collective/saturated.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/collective/sum_columns.h"
#include "base/exact_sum.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr int kFewestWithin = 8;     // results that are their sums, or else
constexpr int kFewestSaturated = 3;  // saturated ones, whose sums differ

// The sum of one element before any division.
struct LargeSum : SumColumn {
  double opposite = 0;  // sum |x| of the addends whose sign differs from that of the sum
  double error = 0;     // error bound for any order of additions whose partial sums are finite
};

class Saturation {
 public:
  Saturation(const ReductionCase& c, double postscale)
      : c_(c),
        dtype_(c.result_dtype()),
        limit_(FormatOf(dtype_).max_finite),
        tolerance_(c, BoundPrecision(c), false) {
    const int casts = c.input_dtype == c.wire_dtype ? 0 : c.ranks;
    absolute_ = (c.ranks + 4 + casts) * UlpOf(limit_, dtype_);
    factors_ = {1.0, postscale, c.average() ? 1.0 / c.ranks : 1.0};
  }

  SaturatedSums Run() {
    if (dtype_ != DType::kF16) return {};
    for (int32_t i = 0; i < c_.samples; ++i) {
      const double y = ResultOf(i);
      const LargeSum sum = SumOf(i);
      if (!std::isfinite(sum.mass)) continue;
      if (!std::isfinite(y)) return {};
      sums_.push_back(sum);
      out_.level = std::max(out_.level, std::fabs(y));
    }
    return FindFactor() && Look() ? out_ : SaturatedSums{};
  }

 private:
  double ResultOf(int32_t i) const { return c_.output[static_cast<size_t>(i)]; }

  LargeSum SumOf(int32_t i) const {
    LargeSum out;
    out.sample = i;
    ExactSum sum;
    double positive = 0;
    for (int r = 0; r < c_.ranks; ++r) {
      const double x = RoundToFormat(c_.input(r, i), c_.wire_dtype);
      out.mass += std::fabs(x);
      if (!std::isfinite(x)) return out;
      sum.Add(x);
      positive += std::max(x, 0.0);
    }
    out.exact = sum.Value();
    out.opposite = out.exact > 0 ? out.mass - positive : positive;
    out.error = tolerance_.Of(out);
    // The limit holds only if inputs are not divided first.
    if (!c_.average()) out.error = std::min(out.error, absolute_);
    return out;
  }

  // Returns true if the largest result is the limit, or the limit after a division.
  bool FindFactor() {
    for (const double f : factors_) {
      const double level = limit_ * std::fabs(f), slack = f == 1 ? 0 : UlpOf(level, dtype_);
      if (!(std::fabs(out_.level - level) <= slack)) continue;
      factor_ = f;
      return true;
    }
    return false;
  }

  bool Look() {
    double least = INFINITY;
    int within = 0;
    out_.limit = limit_;
    out_.compared = static_cast<int32_t>(sums_.size());
    for (const LargeSum& s : sums_) {
      const double y = ResultOf(s.sample), size = std::fabs(s.exact);
      if (s.mass + s.error < limit_) {
        if (!(std::fabs(y - factor_ * s.exact) <= tolerance_.Of(s, factor_))) return false;
        within += y != 0;
        continue;
      }
      if (!(size - s.error > limit_)) continue;
      const double stored = std::copysign(y, y * factor_ * s.exact);
      const double lowest = std::fabs(factor_) * (limit_ - s.opposite - s.error);
      if (!(stored >= lowest)) return false;
      if (stored != out_.level) continue;
      ++out_.saturated;
      least = std::min(least, size);
      if (out_.sample >= 0 && !(size > std::fabs(out_.exact))) continue;
      out_.sample = s.sample;
      out_.exact = s.exact;
    }
    const bool differ = out_.saturated >= kFewestSaturated && std::fabs(out_.exact) > 1.01 * least;
    return out_.found() && (within >= kFewestWithin || differ);
  }

  const ReductionCase& c_;
  const DType dtype_;
  const double limit_;
  const SumTolerance tolerance_;
  double absolute_ = 0;  // largest error of finite partial sums
  std::vector<double> factors_;
  double factor_ = 1;
  std::vector<LargeSum> sums_;
  SaturatedSums out_;
};

}  // namespace

SaturatedSums FindSaturated(const ReductionCase& c, double postscale) {
  return Saturation(c, postscale).Run();
}

}  // namespace plumbline::analysis
