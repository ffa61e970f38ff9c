#include "rules/lib/reduction_settled.h"

#include <algorithm>
#include <cmath>

#include "base/exact_sum.h"

namespace plumbline::rules {
namespace {

bool Same(double a, double b) { return a == b || (a != a && b != b); }

double ExactResult(const ReductionCase& c, const Arithmetic& a, int32_t column) {
  ExactSum sum;
  for (int r = 0; r < c.ranks; ++r) sum.Add(EnterSum(a, c.input(r, column), c.ranks));
  const bool divides = a.averaging != Averaging::kNone;
  return sum.RoundTo(a.store, a.store_rounding, divides ? static_cast<uint32_t>(c.ranks) : 1);
}

// The two results between which every order's result lies; unequal where the order may matter.
struct Range {
  double low = 0;
  double high = 0;
};

Range ResultRange(const ReductionCase& c, const Arithmetic& a, int32_t column) {
  const FloatFormat partial = FormatOf(a.partial);
  const double n = c.ranks;
  double sum = 0;
  double mass = 0;
  for (int r = 0; r < c.ranks; ++r) {
    const double x = EnterSum(a, c.input(r, column), c.ranks);
    sum += x;
    mass += std::fabs(x);
  }
  if (!(mass < partial.max_finite / 4)) return {-1, 1};
  // 1.01 covers the denominator; the second term this function's own sum.
  double error = 1.01 * n * mass * (PowerOfTwo(-partial.precision) + PowerOfTwo(-52));
  if (a.flush != Flush::kNone) error += n * PowerOfTwo(partial.min_exponent);
  return {LeaveSum(a, sum - error, c.ranks), LeaveSum(a, sum + error, c.ranks)};
}

}  // namespace

bool ExactApplies(const Arithmetic& a) {
  if (a.flush != Flush::kNone || a.group > 1) return false;
  const bool plain = a.averaging == Averaging::kNone;
  const bool divided = a.averaging == Averaging::kPostDivided && !a.through_wire;
  return a.exact_only ? plain || a.averaging == Averaging::kPostDivided
                      : a.wide() && (plain || divided);
}

SettledSamples Settle(const ReductionCase& c, const Arithmetic& a, std::span<const int32_t> columns,
                      int enough) {
  SettledSamples out;
  const bool exact = ExactApplies(a);
  if (!a.wide() && !exact) {
    out.open.assign(columns.begin(), columns.end());
    return out;
  }
  for (const int32_t column : columns) {
    const double y = c.output[static_cast<size_t>(column)];
    const Range range = a.wide() ? ResultRange(c, a, column) : Range{-1, 1};
    if (range.low == range.high) {
      ++out.tested;
      out.missed += !Same(range.low, y);
    } else if (!a.exact_only) {
      out.open.push_back(column);
    }
    if (exact) {
      ++out.exact_tested;
      const double result = range.low == range.high ? range.low : ExactResult(c, a, column);
      out.exact_missed += !Same(result, y);
    }
    if (out.missed >= enough || (a.exact_only && out.exact_missed >= enough)) break;
  }
  return out;
}

int32_t CountExact(const ReductionCase& c, const Arithmetic& a, std::span<const int32_t> columns) {
  return static_cast<int32_t>(std::count_if(columns.begin(), columns.end(), [&](int32_t column) {
    return Same(ExactResult(c, a, column), c.output[static_cast<size_t>(column)]);
  }));
}

}  // namespace plumbline::rules
