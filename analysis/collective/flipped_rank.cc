#include "analysis/collective/flipped_rank.h"

#include <cmath>

#include "analysis/collective/replay/replay.h"

namespace plumbline::analysis {
namespace {

constexpr int32_t kFewestFlipped = 32;

ReductionCase WithFlippedRow(const ReductionCase& c, int row) {
  ReductionCase out = c;
  const auto m = static_cast<size_t>(c.samples);
  for (size_t i = 0; i < m; ++i) out.inputs[static_cast<size_t>(row) * m + i] *= -1;
  return out;
}

// How well -2 x_r explains the errors, relative to the sums of magnitudes.
struct Flip {
  double left = 0;  // sum of squares without it, and of the errors
  double all = 0;
  int32_t elements = 0;  // with x_r that is not zero
  int32_t closer = 0;
};

Flip FlipOf(const ReductionCase& c, const std::vector<SumColumn>& columns, int row) {
  Flip flip;
  const double divisor = c.average() ? c.ranks : 1;
  for (const SumColumn& column : columns) {
    const double y = c.output[static_cast<size_t>(column.sample)];
    if (!(column.mass > 0) || !std::isfinite(y)) continue;
    const double error = (y - column.exact) / column.mass;
    const double twice = 2 * c.input(row, column.sample) / (column.mass * divisor);
    flip.all += error * error;
    flip.left += (error + twice) * (error + twice);
    if (twice == 0) continue;
    ++flip.elements;
    flip.closer += std::fabs(error + twice) < std::fabs(error) ? 1 : 0;
  }
  return flip;
}

// Returns true if the row differs from every other one. If not, a sum over half of the ranks, or a
// factor, gives the same results as a flip.
bool IsUnlikeOthers(const ReductionCase& c, const std::vector<SumColumn>& columns, int row) {
  constexpr double kLeastShare = 0.01;
  for (int other = 0; other < c.ranks; ++other) {
    if (other == row) continue;
    double apart = 0, all = 0;
    for (const SumColumn& column : columns) {
      if (!(column.mass > 0)) continue;
      const double x = c.input(row, column.sample) / column.mass;
      const double d = x - c.input(other, column.sample) / column.mass;
      apart += d * d;
      all += x * x;
    }
    if (!(apart >= kLeastShare * all)) return false;
  }
  return true;
}

}  // namespace

FlippedRank FindFlippedRank(const ReductionCase& c, const std::vector<SumColumn>& columns) {
  FlippedRank out;
  Flip best;
  for (int r = 0; r < c.ranks; ++r) {
    const Flip flip = FlipOf(c, columns, r);
    if (out.row >= 0 && flip.left >= best.left) continue;
    best = flip;
    out.row = r;
  }
  const bool likely = 2 * best.left < best.all && best.closer >= kFewestFlipped &&
                      4 * best.closer >= 3 * best.elements;
  if (!likely || !IsUnlikeOthers(c, columns, out.row)) return {};
  const ReductionReplay replay = ReplayReduction(WithFlippedRow(c, out.row));
  if (!replay.explained || replay.distinct < kFewestFlipped) return {};
  out.compared = replay.matches;
  return out;
}

}  // namespace plumbline::analysis
