#include "analysis/collective/replaced_rank.h"

#include <cmath>

#include "analysis/collective/replay/replay.h"

namespace plumbline::analysis {
namespace {

constexpr int32_t kFewestReplaced = 32;

ReductionCase WithRow(const ReductionCase& c, int row, const OtherValue& other) {
  ReductionCase out = c;
  for (int32_t i = 0; i < c.samples; ++i)
    out.inputs[static_cast<size_t>(row) * static_cast<size_t>(c.samples) + static_cast<size_t>(i)] =
        other(row, i);
  return out;
}

double DifferenceOf(const ReductionCase& c, int row, int32_t sample, const OtherValue& other) {
  return other(row, sample) - c.input(row, sample);
}

// How well x'_r - x_r explains the errors, relative to the sums of magnitudes.
struct RowChange {
  double left = 0;  // sum of squares without it, and of the errors
  double all = 0;
  int32_t elements = 0;  // with a difference that is not zero
  int32_t closer = 0;
};

RowChange RowChangeOf(const ReductionCase& c, const std::vector<SumColumn>& columns, int row,
                      const OtherValue& other) {
  RowChange out;
  const double divisor = c.average() ? c.ranks : 1;
  for (const SumColumn& column : columns) {
    const double y = c.output[static_cast<size_t>(column.sample)];
    const double change = DifferenceOf(c, row, column.sample, other) / (column.mass * divisor);
    if (!(column.mass > 0) || !std::isfinite(y) || !std::isfinite(change)) continue;
    const double error = (y - column.exact) / column.mass;
    out.all += error * error;
    out.left += (error - change) * (error - change);
    if (change == 0) continue;
    ++out.elements;
    out.closer += std::fabs(error - change) < std::fabs(error) ? 1 : 0;
  }
  return out;
}

bool IsUnlikeOthers(const ReductionCase& c, const std::vector<SumColumn>& columns, int row,
                    const OtherValue& other) {
  constexpr double kLeastShare = 0.01;
  for (int rank = 0; rank < c.ranks; ++rank) {
    if (rank == row) continue;
    double apart = 0, all = 0;
    for (const SumColumn& column : columns) {
      if (!(column.mass > 0)) continue;
      const double own = DifferenceOf(c, row, column.sample, other) / column.mass;
      const double d = own - DifferenceOf(c, rank, column.sample, other) / column.mass;
      apart += d * d;
      all += own * own;
    }
    if (!(apart >= kLeastShare * all)) return false;
  }
  return true;
}

}  // namespace

ReplacedRank FindReplacedRank(const ReductionCase& c, const std::vector<SumColumn>& columns,
                              const OtherValue& other) {
  ReplacedRank out;
  RowChange best;
  for (int r = 0; r < c.ranks; ++r) {
    const RowChange replaced = RowChangeOf(c, columns, r, other);
    if (out.row >= 0 && replaced.left >= best.left) continue;
    best = replaced;
    out.row = r;
  }
  const bool likely = best.left < best.all && best.closer >= kFewestReplaced &&
                      2 * best.closer > best.elements + 3 * std::sqrt(best.elements);
  if (!likely || !IsUnlikeOthers(c, columns, out.row, other)) return {};
  const ReductionReplay replay = ReplayReduction(WithRow(c, out.row, other));
  if (!replay.explained || replay.distinct < kFewestReplaced) return {};
  out.compared = replay.matches;
  return out;
}

ReplacedRank FindFlippedRank(const ReductionCase& c, const std::vector<SumColumn>& columns) {
  return FindReplacedRank(c, columns,
                          [&](int row, int32_t sample) { return -c.input(row, sample); });
}

}  // namespace plumbline::analysis
