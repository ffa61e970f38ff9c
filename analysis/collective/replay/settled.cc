#include "analysis/collective/replay/settled.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/exact_sum.h"
#include "base/real.h"

namespace plumbline::analysis {
namespace {

double ExactResult(const ReductionCase& c, const Arithmetic& a, int32_t column) {
  ExactSum sum;
  double plain = 0;  // sum including infinities
  for (int r = 0; r < c.ranks; ++r) {
    const double x = EnterSum(a, c.input(r, column), c.ranks);
    if (std::isfinite(x)) {
      sum.Add(x);
    } else {
      plain += x;
    }
  }
  if (plain != 0) return LeaveSum(a, plain, c.ranks);
  const bool divides = a.averaging != Averaging::kNone;
  const RoundingMode mode = StoreMode(a, sum.RoundTo(DType::kF64, RoundingMode::kNearestEven));
  return sum.RoundTo(a.store, mode, divides ? static_cast<uint32_t>(c.ranks) : 1);
}

// The two results between which the result of every order is. They differ if the order may matter.
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
  // 1.01 covers the denominator; the second term covers the rounding of this function's own sum.
  double error = 1.01 * n * mass * (PowerOfTwo(-partial.precision) + PowerOfTwo(-52));
  if (a.flush != Flush::kNone) error += n * PowerOfTwo(partial.min_exponent);
  return {LeaveSum(a, sum - error, c.ranks), LeaveSum(a, sum + error, c.ranks)};
}

// Returns the exponent of the lowest set bit of x != 0.
int LowestBit(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  const auto field = static_cast<int>((bits >> 52) & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  if (field == 0) return -1074 + std::countr_zero(fraction);
  return fraction == 0 ? field - 1023 : field - 1075 + std::countr_zero(fraction);
}

// If addends are multiples of one unit, and few enough that the dtype holds every partial sum, no
// order rounds. Then low = high.
Range UnroundedResult(const ReductionCase& c, const Arithmetic& a, int32_t column) {
  constexpr Range kOpen{-1, 1};
  const FloatFormat f = FormatOf(a.partial);
  if (a.flush != Flush::kNone) return kOpen;
  int lowest = 1023;
  double mass = 0;
  double sum = 0;
  for (int r = 0; r < c.ranks; ++r) {
    const double x = EnterSum(a, c.input(r, column), c.ranks);
    if (x == 0) continue;
    lowest = std::min(lowest, LowestBit(x));
    mass += std::fabs(x);
    // The test also ensures that this sum is exact.
    if (!(mass <= std::ldexp(1, lowest + f.precision)) || !(mass <= f.max_finite)) return kOpen;
    sum += x;
  }
  const double result = LeaveSum(a, sum, c.ranks);
  return {result, result};
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
  for (const int32_t column : columns) {
    const double y = c.output[static_cast<size_t>(column)];
    const Range range = a.wide() ? ResultRange(c, a, column) : UnroundedResult(c, a, column);
    if (range.low == range.high) {
      ++out.tested;
      out.missed += !SameResult(range.low, y);
    } else if (!a.exact_only) {
      out.open.push_back(column);
    }
    if (exact) {
      ++out.exact_tested;
      const double result = range.low == range.high ? range.low : ExactResult(c, a, column);
      out.exact_missed += !SameResult(result, y);
    }
    if (out.missed >= enough || (a.exact_only && out.exact_missed >= enough)) break;
  }
  return out;
}

int32_t CountExact(const ReductionCase& c, const Arithmetic& a, std::span<const int32_t> columns) {
  return static_cast<int32_t>(std::count_if(columns.begin(), columns.end(), [&](int32_t column) {
    return SameResult(ExactResult(c, a, column), c.output[static_cast<size_t>(column)]);
  }));
}

}  // namespace plumbline::analysis
