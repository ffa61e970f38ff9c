#include "analysis/collective/odd_rank.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/collective/replay/replay.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kFewestOfOddRank = 32;

ElementValues PlusScaled(const ElementValues& a, double factor, const ElementValues& b) {
  ElementValues out(a);
  for (size_t i = 0; i < a.size(); ++i) out[i] += factor * b[i];
  return out;
}

double SquaresOf(const ElementValues& a) { return DotProduct(a, a); }

// Removes from `a` its part along `b`.
ElementValues WithoutPart(const ElementValues& a, const ElementValues& b) {
  const double norm = SquaresOf(b);
  return norm > 0 ? PlusScaled(a, -DotProduct(a, b) / norm, b) : a;
}

ReductionCase WithFlippedRow(const ReductionCase& c, int row) {
  ReductionCase out = c;
  const auto m = static_cast<size_t>(c.samples);
  for (size_t i = 0; i < m; ++i) out.inputs[static_cast<size_t>(row) * m + i] *= -1;
  return out;
}

class OddRankSearch {
 public:
  OddRankSearch(const ReductionCase& c, const std::vector<SumColumn>& columns) : c_(c) {
    const double divisor = c.average() ? c.ranks : 1;
    for (const SumColumn& column : columns) {
      const double y = c.output[static_cast<size_t>(column.sample)];
      if (!(column.mass > 0) || !std::isfinite(y)) continue;
      columns_.push_back(column);
      errors_.push_back((y - column.exact) / column.mass);
      sums_.push_back(column.exact / column.mass);
      const double ulp = UlpOf(column.exact, c.result_dtype()) / column.mass;
      roundings_ += ulp * ulp;
    }
    for (int r = 0; r < c.ranks; ++r) {
      ElementValues row;
      for (const SumColumn& column : columns_)
        row.push_back(c.input(r, column.sample) / (column.mass * divisor));
      rows_.push_back(std::move(row));
    }
  }

  OddRank Run() const {
    OddRank out;
    if (columns_.size() < kFewestOfOddRank || !(SquaresOf(errors_) > 0)) return out;
    out.compared = static_cast<int32_t>(columns_.size());
    if (FindFlipped(out) || (c_.ranks > 2 && FindReplaced(out))) return out;
    return {};
  }

 private:
  bool FindFlipped(OddRank& out) const {
    double least = INFINITY, next = INFINITY;
    for (int r = 0; r < c_.ranks; ++r) {
      const double rest = SquaresOf(PlusScaled(errors_, 2, rows_[static_cast<size_t>(r)]));
      if (rest < least) {
        next = least;
        least = rest;
        out.row = r;
      } else {
        next = std::min(next, rest);
      }
    }
    if (!(least < SquaresOf(errors_) / 2)) return false;
    const double factor = SquaresOf(WithoutPart(errors_, sums_));
    const bool alone = 9 * least <= next && 9 * least <= factor &&
                       16 * least <= SquaresOf(rows_[static_cast<size_t>(out.row)]);
    const ReductionCase flipped = WithFlippedRow(c_, out.row);
    const ReductionReplay replay = ReplayReduction(flipped);
    out.replayed = replay.explained && replay.distinct >= static_cast<int32_t>(kFewestOfOddRank);
    const bool within = alone && Fits(SumColumnsOf(flipped), c_.output, 1,
                                      SumTolerance(flipped, BoundPrecision(c_), false));
    if (out.replayed || within) out.kind = OddRank::Kind::kFlipped;
    return out.found();
  }

  bool FindReplaced(OddRank& out) const {
    const auto m = static_cast<double>(columns_.size());
    const ElementValues errors = WithoutPart(errors_, sums_);
    ElementValues mean(columns_.size(), 0);
    for (const ElementValues& row : rows_) mean = PlusScaled(mean, 1.0 / c_.ranks, row);
    std::vector<ElementValues> deviations;
    double most = 0;
    for (int r = 0; r < c_.ranks; ++r) {
      deviations.push_back(WithoutPart(PlusScaled(rows_[static_cast<size_t>(r)], -1, mean), sums_));
      const double norm = SquaresOf(deviations.back());
      const double product = DotProduct(errors, deviations.back());
      const double explained = norm > 0 ? product * product / norm : 0;
      if (explained <= most) continue;
      most = explained;
      out.row = r;
      // A part of x_r is in the mean.
      out.weight = 1 + product / norm * (1 - 1.0 / c_.ranks);
    }
    if (out.row < 0) return false;
    const ElementValues& row = rows_[static_cast<size_t>(out.row)];
    const ElementValues& own = deviations[static_cast<size_t>(out.row)];
    const ElementValues rest = WithoutPart(errors, own);
    out.deviation = std::sqrt(SquaresOf(rest) / m / SquaresOf(own));
    if (!(std::fabs(out.weight) < std::min(0.2, 5 * out.deviation) && 5 * out.deviation < 0.6))
      return false;
    const double other = SquaresOf(PlusScaled(errors_, 1, row)), size = SquaresOf(row);
    if (!(4 * other > size && other < 4 * size && other > 4 * roundings_)) return false;
    for (const ElementValues& d : deviations) {
      const double product = DotProduct(rest, d);
      if (!(product * product <= 25 / m * SquaresOf(rest) * SquaresOf(d))) return false;
    }
    out.kind = OddRank::Kind::kReplaced;
    return true;
  }

  const ReductionCase& c_;
  std::vector<SumColumn> columns_;
  // By element, in units of the sum of magnitudes.
  ElementValues errors_, sums_;
  std::vector<ElementValues> rows_;  // by rank
  double roundings_ = 0;             // sum of squares of the results' ulps
};

}  // namespace

OddRank FindOddRank(const ReductionCase& c, const std::vector<SumColumn>& columns) {
  return OddRankSearch(c, columns).Run();
}

}  // namespace plumbline::analysis
