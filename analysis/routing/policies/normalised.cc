#include "analysis/routing/policies/normalised.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "analysis/sample/sample.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr int64_t kFewestNormalisedRows = 32;
constexpr double kChanceBits = 10;
// Relative error of an iteration that has not fully converged.
constexpr double kUnconverged = 1e-4;

using Rows = std::vector<int32_t>;

// One expert's scores over a group of rows.
struct Column {
  double sum = 0;
  double spread = 0;    // standard deviation of the sum, if rows were independent
  double rounding = 0;  // the most that rounding of the recorded values may have changed it
};

Column ColumnOf(const RoutingCase& c, const Rows& rows, int32_t e) {
  Column out;
  double mean = 0, squares = 0, count = 0;
  for (const int32_t t : rows) {
    const double x = c.scores.At(t, e);
    out.sum += x;
    out.rounding += UlpOf(x, c.scores.dtype()) / 2;
    const double step = x - mean;
    mean += step / ++count;
    squares += step * (x - mean);
  }
  out.spread = std::sqrt(squares);
  return out;
}

// Returns six standard deviations of the sum's rounding error. Equal values have equal rounding
// errors; different values have independent errors.
double LikelyRounding(const RoutingCase& c, const Rows& rows, int32_t e) {
  std::vector<double> values;
  for (const int32_t t : rows) values.push_back(c.scores.At(t, e));
  std::sort(values.begin(), values.end());
  double variance = 0;
  for (size_t i = 0; i < values.size();) {
    size_t end = i;
    while (end < values.size() && values[end] == values[i]) ++end;
    const double moved = static_cast<double>(end - i) * UlpOf(values[i], c.scores.dtype());
    variance += moved * moved / 12;
    i = end;
  }
  return 6 * std::sqrt(variance);
}

// Returns -log2 of the probability that independent columns agree to `tolerance`. If these do not
// agree, returns negative infinity.
double AgreementBits(const std::vector<Column>& columns, double tolerance) {
  const auto [least, most] =
      std::minmax_element(columns.begin(), columns.end(),
                          [](const Column& a, const Column& b) { return a.sum < b.sum; });
  if (!(least->sum > 0) || !(most->sum - least->sum <= 2 * tolerance)) return -HUGE_VAL;
  double bits = 0;
  for (size_t e = 1; e < columns.size(); ++e)
    bits += std::log2(columns[e].spread * std::sqrt(2 * std::numbers::pi) / (2 * tolerance));
  return bits;
}

// Returns the same for a group of rows, with the tolerance that gives most bits.
double GroupBits(const RoutingCase& c, const Rows& rows) {
  std::vector<Column> columns;
  double rounding = 0, sum = 0;
  for (int32_t e = 0; e < c.experts; ++e) {
    columns.push_back(ColumnOf(c, rows, e));
    const Column &first = columns[0], &last = columns.back();
    rounding = std::max(rounding, last.rounding);
    sum = std::max(sum, last.sum);
    // The largest difference that rounding errors can cause.
    const double open = first.rounding + last.rounding + kUnconverged * sum;
    if (!(std::abs(first.sum - last.sum) <= open)) return -HUGE_VAL;
  }
  const double bits = AgreementBits(columns, kUnconverged * sum / 2);
  if (bits >= kChanceBits) return bits;
  double likely = 0;
  for (int32_t e = 0; e < c.experts; ++e) likely = std::max(likely, LikelyRounding(c, rows, e));
  return std::max(bits, AgreementBits(columns, std::min(likely, rounding)));
}

// Returns true if the columns of every group agree.
bool AllAgree(const RoutingCase& c, const std::vector<Rows>& groups) {
  double bits = 0;
  int64_t seen = 0;
  for (const Rows& rows : groups) {
    if (rows.size() < 2) continue;
    const double here = GroupBits(c, rows);
    if (here == -HUGE_VAL) return false;
    bits += here;
    seen += static_cast<int64_t>(rows.size());
  }
  return seen >= kFewestNormalisedRows && bits >= kChanceBits;
}

}  // namespace

bool NormalisedOverTokens(const RoutingCase& c) {
  if (c.routing->sample().scores_are_logits() || c.experts < 2 ||
      c.judged_rows < kFewestNormalisedRows)
    return false;
  const bool sequences = !c.sequence.empty();
  const DenseIds sequence = sequences ? NumberIds(c.sequence) : DenseIds{};
  std::vector<Rows> all(1), pools(static_cast<size_t>(c.pools)),
      by_sequence(static_cast<size_t>(sequences ? sequence.count : 0));
  for (int32_t t = 0; t < c.tokens; ++t) {
    const auto row = static_cast<size_t>(t);
    if (!c.judged(t) || c.rows[row] == RowState::kNonFinite) continue;
    all[0].push_back(t);
    pools[static_cast<size_t>(c.pool[row])].push_back(t);
    if (sequences) by_sequence[static_cast<size_t>(sequence.of_row[row])].push_back(t);
  }
  return AllAgree(c, all) || (pools.size() > 1 && AllAgree(c, pools)) ||
         (by_sequence.size() > 1 && AllAgree(c, by_sequence));
}

}  // namespace plumbline::analysis
