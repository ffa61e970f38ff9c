#include "analysis/collective/bound.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "analysis/collective/sum_columns.h"
#include "base/real.h"

namespace plumbline::analysis {
namespace {

// If every deviating element was clipped to one magnitude, returns this magnitude, else 0.
double ClippedAt(const std::vector<SumColumn>& columns, const std::vector<double>& y,
                 const SumTolerance& tolerance) {
  double limit = 0;
  int cut = 0;
  for (const SumColumn& column : columns) {
    const double value = y[static_cast<size_t>(column.sample)];
    if (std::fabs(value - column.exact) <= tolerance.Of(column)) continue;
    const bool shorter = std::fabs(value) < std::fabs(column.exact) && value * column.exact > 0;
    if (!shorter || (limit != 0 && std::fabs(value) != limit)) return 0;
    limit = std::fabs(value);
    ++cut;
  }
  for (const SumColumn& column : columns) {
    if (std::fabs(y[static_cast<size_t>(column.sample)]) > limit) return 0;
  }
  return cut >= 1 ? limit : 0;
}

// Returns true if only the largest sums were kept: every deviating element is zero, and no kept sum
// is smaller than these.
bool KeepsLargest(const std::vector<SumColumn>& columns, const std::vector<double>& y,
                  const SumTolerance& tolerance) {
  double largest_zeroed = 0, least_kept = INFINITY;
  size_t zeroed = 0;
  for (const SumColumn& column : columns) {
    const double value = y[static_cast<size_t>(column.sample)], size = std::fabs(column.exact);
    const bool off = std::fabs(value - column.exact) > tolerance.Of(column);
    if (off && value != 0) return false;
    if (off) {
      ++zeroed;
      largest_zeroed = std::max(largest_zeroed, size);
    } else if (value != 0) {
      least_kept = std::min(least_kept, size + tolerance.Of(column));
    }
  }
  return zeroed >= kFewestOfFactor && largest_zeroed <= least_kept && least_kept < INFINITY;
}

struct Broken {
  int32_t beyond = 0;
  int32_t standing_out = 0;
  double worst_error = 0;
  BrokenSum worst;
};

Broken CountBeyond(const std::vector<SumColumn>& columns, const std::vector<double>& y,
                   const SumTolerance& tolerance, bool non_finite_too) {
  Broken out;
  double within = 0;  // largest error among elements within their bound
  std::vector<double> errors;
  double worst = 0;
  for (const SumColumn& column : columns) {
    const double value = y[static_cast<size_t>(column.sample)];
    if (!std::isfinite(value) && !non_finite_too) continue;
    const double error = std::fabs(value - column.exact), bound = tolerance.Of(column);
    if (error <= bound) {
      within = std::max(within, error);
      continue;
    }
    ++out.beyond;
    errors.push_back(std::isfinite(error) ? error : INFINITY);
    const double excess = errors.back() / bound;
    if (out.worst.sample >= 0 && !(excess > worst)) continue;
    worst = excess;
    out.worst = {column.sample, value, column.exact, bound};
  }
  for (const double e : errors) out.worst_error = std::max(out.worst_error, e);
  out.standing_out = static_cast<int32_t>(
      std::count_if(errors.begin(), errors.end(), [&](double e) { return e > 4 * within; }));
  return out;
}

double QuantisedError(const ReductionCase& c) {
  double amax = 0;
  for (const double x : c.inputs) amax = std::isfinite(x) ? std::max(amax, std::fabs(x)) : amax;
  return c.ranks * amax / 127 / (c.average() ? c.ranks : 1);
}

// Returns true if nine of ten samples come from additions that round to nearest.
bool RoundsToNearest(const ReductionReplay& replay) {
  if (replay.explained) return replay.arithmetic.rounding == HopRounding::kNearest;
  const auto judged = static_cast<double>(replay.columns.size());
  return judged >= 64 && replay.runner_up_matches >= 0.9 * judged &&
         replay.runner_up.find("toward") == std::string::npos &&
         replay.runner_up.find("cut") == std::string::npos;
}

// Returns true if a factor was applied. Over this number of ranks, rounding alone could explain any
// result. So the factor must be 1/N, or far from 1 and equal in all elements, because rounding does
// not change every sum by the same large factor.
bool ActsAsFactor(const std::vector<SumColumn>& columns, const std::vector<double>& y,
                  double factor, int ranks) {
  const double off = Residual(columns, y, factor);
  if (std::fabs(factor * ranks - 1) < 0.02) return Residual(columns, y, 1) > 4 * off && off < 0.5;
  if ((factor < 0.3 || factor > 3) && off < 0.05) return true;
  return std::fabs(factor - 1) > 0.1 && off < 0.02;
}

// Returns true if the results are one multiple of the exact sums, within two roundings. Sums in few
// bits deviate more, so these results were summed accurately, stored, and then scaled. Allows a
// quarter of a unit for the error of the factor.
bool FollowsTightly(const std::vector<SumColumn>& columns, const std::vector<double>& y,
                    double factor, DType result) {
  if (!(std::fabs(factor - 1) > 4 * PowerOfTwo(-FormatOf(result).precision))) return false;
  std::set<double> mantissas;
  for (const SumColumn& column : columns) {
    const double value = y[static_cast<size_t>(column.sample)];
    const double stored = std::fabs(factor) * UlpOf(column.exact, result) / 2;
    const double room = 0.75 * UlpOf(value, result) + stored;
    if (!(std::fabs(value - factor * column.exact) <= room)) return false;
    int exponent = 0;
    mantissas.insert(std::frexp(column.exact, &exponent));
  }
  return mantissas.size() >= kFewestOfFactor;
}

// Returns true if |y - s| < |s| over all elements, which defines a compression operator
// (Karimireddy et al., "Error Feedback Fixes SignSGD", 2019). Unrelated values deviate more than
// zeros.
bool Contracts(const std::vector<SumColumn>& columns, const std::vector<double>& y) {
  double off = 0, all = 0;
  for (const SumColumn& column : columns) {
    const double d = y[static_cast<size_t>(column.sample)] - column.exact;
    off += d * d;
    all += column.exact * column.exact;
  }
  return off < all;
}

// Returns "" if the results are not a common multiple of the sums.
std::string FactorExplanation(const std::vector<SumColumn>& columns, const ReductionCase& c,
                              const SumTolerance& tolerance, bool beyond) {
  double factor = CommonFactor(columns, c.output);
  if (factor == 0) return "";
  const double share = 1.0 / c.ranks;
  const bool fits = beyond && Fits(columns, c.output, factor, tolerance);
  if (!fits && !ActsAsFactor(columns, c.output, factor, c.ranks) &&
      !FollowsTightly(columns, c.output, factor, c.result_dtype()))
    return "";
  if (std::fabs(factor / share - 1) < 0.02) factor = share;
  return absl::StrFormat(
      "common-factor: every element is %.9g times the sum of its inputs (a division, or a clip of "
      "the norm); declare postscale = %.9g, or record the output before the scaling",
      factor, factor);
}

void CheckOthers(const ReductionCase& c, const std::vector<SumColumn>& columns,
                 const SumTolerance& tolerance, SumBound* bound) {
  if (c.ranks < 3 || !c.output_majority) return;
  for (const ReductionCase::Other& other : c.others) {
    const Broken seen = CountBeyond(columns, other.values, tolerance, true);
    if (seen.standing_out == 0) continue;
    const double factor = CommonFactor(columns, other.values);
    if (factor != 0 && Fits(columns, other.values, factor, tolerance)) continue;
    bound->ranks.push_back({other.rank, seen.beyond, seen.worst});
  }
}

// Returns true if the ranks' results differ on every element that is not the sum: results over some
// of the ranks, as of shards that are recorded under one name. A wrong sum is the same on all
// ranks.
bool DifferWhereBeyond(const ReductionCase& c, const std::vector<SumColumn>& columns,
                       const SumTolerance& tolerance) {
  return std::all_of(columns.begin(), columns.end(), [&](const SumColumn& column) {
    const auto i = static_cast<size_t>(column.sample);
    if (std::fabs(c.output[i] - column.exact) <= tolerance.Of(column)) return true;
    return std::any_of(c.others.begin(), c.others.end(), [&](const ReductionCase::Other& other) {
      return !SameResult(other.values[i], c.output[i]);
    });
  });
}

}  // namespace

bool IsPlainSum(const std::string& algorithm) {
  static constexpr std::string_view kOrders[] = {"ring", "tree",     "halving", "collnet", "nvls",
                                                 "pat",  "pairwise", "bruck",   "doubling"};
  const std::string small = absl::AsciiStrToLower(algorithm);
  return std::any_of(std::begin(kOrders), std::end(kOrders), [&](std::string_view order) {
    return small.find(order) != std::string::npos;
  });
}

void PreferMajority(ReductionCase& c) {
  if (c.majority < 0) return;
  const std::vector<SumColumn> columns = SumColumnsOf(c);
  const SumTolerance tolerance(c, BoundPrecision(c), false);
  ReductionCase::Other& usual = c.others[static_cast<size_t>(c.majority)];
  const int32_t first = CountBeyond(columns, c.output, tolerance, true).beyond;
  if (first == 0 || CountBeyond(columns, usual.values, tolerance, true).beyond > 0) return;
  std::swap(c.output, usual.values);
  std::swap(c.output_rank, usual.rank);
  // Keeps in `others` only results that differ from the new output.
  std::erase_if(c.others,
                [&](const ReductionCase::Other& other) { return other.values == c.output; });
  c.differing_ranks.clear();
  for (const ReductionCase::Other& other : c.others) c.differing_ranks.push_back(other.rank);
  c.output_majority = true;
  c.majority = -1;
}

SumBound CheckSumBound(const ReductionCase& c, const ReductionReplay& replay, double postscale) {
  SumBound bound;
  const std::vector<SumColumn> columns = SumColumnsOf(c);
  bound.compared = static_cast<int32_t>(columns.size());
  bound.precision = BoundPrecision(c);
  bound.nearest = KnowsWire(c) && RoundsToNearest(replay);
  const SumTolerance tolerance(c, bound.precision, bound.nearest);
  const Broken seen = CountBeyond(columns, c.output, tolerance, false);
  bound.beyond = seen.beyond;
  bound.worst = seen.worst;
  if (replay.explained || seen.beyond == 0) CheckOthers(c, columns, tolerance, &bound);
  if (replay.explained) return bound;  // a result that is explained on every sample is a sum
  if (postscale == 1) bound.flipped = FindFlippedRank(c, columns);
  if (postscale == 1 && !bound.flipped.found()) bound.cut = FindCutInputs(c, columns);
  if (bound.flipped.found() || bound.cut.found()) return bound;
  bound.explanation = FactorExplanation(columns, c, tolerance, seen.beyond > 0);
  const bool off = seen.beyond > 0 || !bound.explanation.empty();
  if (postscale != 1 && off &&
      (Fits(columns, c.output, postscale, tolerance) ||
       (!bound.explanation.empty() &&
        std::fabs(CommonFactor(columns, c.output) / postscale - 1) < 0.02))) {
    bound.explanation.clear();
    bound.postscaled = true;
    return bound;
  }
  if (!bound.explanation.empty() || seen.beyond == 0) return bound;
  // The values may have been quantised, so allows the error of 8 bits with one scale per rank.
  bound.broken = seen.worst_error > QuantisedError(c) ? seen.standing_out : 0;
  if (const double limit = ClippedAt(columns, c.output, tolerance); limit != 0) {
    bound.explanation = absl::StrFormat(
        "clipped: every element that is not its sum is clipped to magnitude %.9g; record the "
        "output before the clip",
        limit);
  }
  if (KeepsLargest(columns, c.output, tolerance) && !IsPlainSum(c.algorithm))
    bound.explanation =
        "sparsified: only the largest sums are present and all other elements are zero; declare "
        "algorithm top-k";
  if (!bound.explanation.empty()) return bound;
  // In a reduce to another rank, or in a scatter, another rank has the sums.
  const bool elsewhere =
      std::any_of(c.others.begin(), c.others.end(), [&](const ReductionCase::Other& other) {
        return CountBeyond(columns, other.values, tolerance, true).beyond == 0;
      });
  const bool scattered = c.ranks > 2 && !c.differing_ranks.empty() && !c.output_majority &&
                         2 * seen.beyond > bound.compared;
  const bool apart = c.ranks > 2 && DifferWhereBeyond(c, columns, tolerance);
  const bool most = 4 * seen.beyond > bound.compared;
  if (most && !IsPlainSum(c.algorithm) && Contracts(columns, c.output))
    bound.explanation =
        "compressed-unsaid: most results are close to the sums but not equal, as with compression; "
        "declare algorithm (powersgd, one-bit, top-k, int8-scaled, fp8-scaled)";
  if (elsewhere || scattered || apart)
    bound.explanation =
        "not-shared: the ranks got different results, and those of the first rank are not the sums "
        "(a scatter, a reduce to another rank, sums over some of the ranks)";
  return bound;
}

}  // namespace plumbline::analysis
