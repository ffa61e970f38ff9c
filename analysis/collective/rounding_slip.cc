#include "analysis/collective/rounding_slip.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/collective/sum_columns.h"
#include "base/exact_sum.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr int32_t kFewestOfSlip = 32;
constexpr int kBitsOfF32 = 24;

double RelativeBias(const std::vector<SumColumn>& columns, const std::vector<double>& y) {
  double off = 0, all = 0;
  for (const SumColumn& column : columns) {
    const double d = y[static_cast<size_t>(column.sample)] - column.exact;
    off += column.exact < 0 ? -d : d;
    all += std::fabs(column.exact);
  }
  return all > 0 ? off / all : 0;
}

// Returns the call with inputs rounded to `dtype`, declared as sent in f32.
ReductionCase WithRoundedInputs(const ReductionCase& c, DType dtype, RoundingMode mode) {
  ReductionCase out = c;
  for (double& x : out.inputs) x = RoundToFormat(x, dtype, mode);
  out.wire_dtype = DType::kF32;
  return out;
}

// Returns the number of results outside the f32 bound of the sums.
int32_t BeyondF32(const ReductionCase& c, const std::vector<SumColumn>& columns) {
  const SumTolerance tolerance(c, kBitsOfF32, false);
  int32_t beyond = 0;
  for (const SumColumn& column : columns) {
    const double y = c.output[static_cast<size_t>(column.sample)];
    beyond += !(std::fabs(y - column.exact) <= tolerance.Of(column));
  }
  return beyond;
}

RoundingSlip FindCutInputs(const ReductionCase& c, const std::vector<SumColumn>& columns) {
  if (c.input_dtype != DType::kF32 || FormatOf(c.output_dtype).precision < kBitsOfF32) return {};
  if (BeyondF32(c, columns) < kFewestOfSlip) return {};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const ReductionCase cut = WithRoundedInputs(c, dtype, RoundingMode::kTowardZero);
    if (BeyondF32(cut, SumColumnsOf(cut)) > 0) continue;
    const ReductionCase nearest = WithRoundedInputs(c, dtype, RoundingMode::kNearestEven);
    const int32_t decisive = BeyondF32(nearest, SumColumnsOf(nearest));
    if (decisive < kFewestOfSlip) continue;
    return {RoundingSlip::Kind::kCutInputs, dtype, static_cast<int32_t>(columns.size()), decisive,
            RelativeBias(columns, c.output)};
  }
  return {};
}

// Equal samples count once, as one of the others.
std::vector<bool> RepeatedSamples(const ReductionCase& c, const std::vector<SumColumn>& columns) {
  std::vector<int32_t> samples;
  for (const SumColumn& column : columns) samples.push_back(column.sample);
  std::vector<bool> repeated(static_cast<size_t>(c.samples), false);
  for (const int32_t i : FindDistinct(c, samples).repeated) repeated[static_cast<size_t>(i)] = true;
  return repeated;
}

// Returns the distance of a result from its sum, away from zero. If it is within the error of a sum
// in f32 and a division, returns 0.
double AwayFromZero(const ReductionCase& c, const SumColumn& column, double* slack) {
  *slack = (c.ranks + 4) * PowerOfTwo(1 - kBitsOfF32) * column.mass;
  const double y = c.output[static_cast<size_t>(column.sample)];
  const double off = (column.exact < 0 ? -1 : 1) * (y - column.exact);
  return std::fabs(off) <= *slack ? 0 : off;
}

RoundingSlip FindStoredAway(const ReductionCase& c, const std::vector<SumColumn>& columns) {
  const DType t = c.result_dtype();
  if (FormatOf(t).precision >= kBitsOfF32) return {};
  double slack = 0;
  for (const SumColumn& column : columns) {
    const double off = AwayFromZero(c, column, &slack);
    if (off < 0 || off > UlpOf(column.exact, t) + slack) return {};
  }
  const std::vector<bool> repeated = RepeatedSamples(c, columns);
  int32_t away = 0, near = 0, far = 0;
  for (const SumColumn& column : columns) {
    const double off = AwayFromZero(c, column, &slack), ulp = UlpOf(column.exact, t);
    if (off == 0 || repeated[static_cast<size_t>(column.sample)]) continue;
    ++away;
    near += off < ulp / 4;
    far += off > 3 * ulp / 4;
  }
  if (away < kFewestOfSlip || 8 * near < away || 8 * far < away) return {};
  return {RoundingSlip::Kind::kStoredAway, t, static_cast<int32_t>(columns.size()), away,
          RelativeBias(columns, c.output)};
}

}  // namespace

RoundingSlip FindRoundingSlip(const ReductionCase& c, const std::vector<SumColumn>& columns) {
  for (const SumColumn& column : columns) {
    if (!std::isfinite(c.output[static_cast<size_t>(column.sample)])) return {};
  }
  RoundingSlip slip = FindCutInputs(c, columns);
  return slip.found() ? slip : FindStoredAway(c, columns);
}

SaturatedSums FindSaturated(const ReductionCase& c) {
  SaturatedSums out;
  const DType t = c.result_dtype();
  out.limit = FormatOf(t).max_finite;
  const auto at_limit = [&](double y) { return std::fabs(y) == out.limit; };
  if (std::none_of(c.output.begin(), c.output.end(), at_limit)) return out;
  const uint32_t divisor = c.average() ? static_cast<uint32_t>(c.ranks) : 1;
  double least = INFINITY;
  int32_t within = 0, off = 0;
  for (int32_t i = 0; i < c.samples; ++i) {
    ExactSum sum;
    double mass = 0;
    for (int r = 0; r < c.ranks && std::isfinite(mass); ++r) {
      const double x = RoundToFormat(c.input(r, i), c.wire_dtype);
      mass += std::fabs(x);
      if (std::isfinite(x)) sum.Add(x);
    }
    const double y = c.output[static_cast<size_t>(i)];
    if (!std::isfinite(mass)) continue;
    ++out.compared;
    if (!std::isfinite(y)) continue;
    const double exact = sum.RoundTo(DType::kF64, RoundingMode::kNearestEven, divisor);
    const double size = std::fabs(exact);
    if (std::isfinite(RoundToFormat(exact, t))) {
      if (mass > out.limit) continue;  // partial sums may saturate
      ++within;
      off += !(std::fabs(y - exact) <= mass / divisor / 16);
      continue;
    }
    if (std::fabs(y) != out.limit || y * exact < 0) continue;
    ++out.saturated;
    least = std::min(least, size);
    if (out.sample >= 0 && !(size > std::fabs(out.exact))) continue;
    out.sample = i;
    out.exact = exact;
  }
  const bool differ = std::fabs(out.exact) > 1.01 * least;
  const bool plain = within >= 8 && off == 0;
  if (!differ && !plain) out.sample = -1;
  return out;
}

}  // namespace plumbline::analysis
