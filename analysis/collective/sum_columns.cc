#include "analysis/collective/sum_columns.h"

#include <algorithm>
#include <cmath>

#include "base/exact_sum.h"
#include "base/half.h"

namespace plumbline::analysis {

bool KnowsWire(const ReductionCase& c) {
  return c.wire_declared || FormatOf(c.input_dtype).precision <= FormatOf(DType::kF16).precision;
}

int BoundPrecision(const ReductionCase& c) {
  const int stated = FormatOf(c.wire_dtype).precision;
  return KnowsWire(c) ? stated : std::min(stated, FormatOf(DType::kBF16).precision);
}

std::vector<SumColumn> SumColumnsOf(const ReductionCase& c) {
  std::vector<SumColumn> columns;
  const uint32_t divisor = c.average() ? static_cast<uint32_t>(c.ranks) : 1;
  const double most = FormatOf(c.wire_dtype).max_finite / 2;
  for (int32_t i = 0; i < c.samples; ++i) {
    ExactSum sum;
    double mass = 0;
    for (int r = 0; r < c.ranks && std::isfinite(mass); ++r) {
      const double x = c.input(r, i);
      mass += std::fabs(x);
      if (std::isfinite(x)) sum.Add(x);
    }
    if (!(mass < most)) continue;
    columns.push_back(
        {i, sum.RoundTo(DType::kF64, RoundingMode::kNearestEven, divisor), mass / divisor});
  }
  return columns;
}

SumTolerance::SumTolerance(const ReductionCase& c, int precision, bool nearest)
    : result_(c.result_dtype()) {
  const double unit = PowerOfTwo((nearest ? 0 : 1) - precision);
  const double terms = (c.ranks + 4) * unit;
  // If additions round to nearest, the bound needs no second order in the additions (Jeannerod and
  // Rump 2013). The four other roundings add it.
  factor_ = nearest ? terms * (1 + 8 * unit) : terms < 1 ? terms / (1 - terms) : INFINITY;
  // Covers subnormals of every operand, flushed or not.
  floor_ = (c.ranks + 2) * PowerOfTwo(FormatOf(c.wire_dtype).min_exponent);
}

double SumTolerance::Of(const SumColumn& column, double scale) const {
  scale = std::fabs(scale);
  const double sum = scale * (factor_ * column.mass + floor_);
  return sum + UlpOf(scale * std::fabs(column.exact) + sum, result_);
}

bool Fits(const std::vector<SumColumn>& columns, const std::vector<double>& y, double scale,
          const SumTolerance& tolerance) {
  return std::all_of(columns.begin(), columns.end(), [&](const SumColumn& column) {
    const double value = y[static_cast<size_t>(column.sample)];
    return std::fabs(value - scale * column.exact) <= tolerance.Of(column, scale);
  });
}

double CommonFactor(const std::vector<SumColumn>& columns, const std::vector<double>& y) {
  double products = 0, squares = 0, largest = 0;
  size_t non_zero = 0;
  for (const SumColumn& column : columns) largest = std::max(largest, std::fabs(column.exact));
  if (!(largest > 0)) return 0;
  for (const SumColumn& column : columns) {
    const double s = column.exact / largest, value = y[static_cast<size_t>(column.sample)];
    non_zero += value != 0 && s != 0;
    products += value / largest * s;
    squares += s * s;
  }
  return non_zero < kFewestOfFactor || !std::isfinite(products) ? 0 : products / squares;
}

double Residual(const std::vector<SumColumn>& columns, const std::vector<double>& y, double scale) {
  double off = 0, all = 0;
  for (const SumColumn& column : columns) {
    const double value = y[static_cast<size_t>(column.sample)];
    off += (value - scale * column.exact) * (value - scale * column.exact);
    all += value * value;
  }
  return all > 0 ? std::sqrt(off / all) : INFINITY;
}

}  // namespace plumbline::analysis
