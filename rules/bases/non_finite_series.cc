#include "rules/bases/non_finite_series.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/series/series.h"
#include "rules/bases/companions.h"

namespace plumbline::rules {
namespace {

NonFiniteCourse::Kind CourseOf(SeriesRole role) {
  return role == SeriesRole::kGradientNorm ? NonFiniteCourse::Kind::kNorm
         : role == SeriesRole::kNanCount   ? NonFiniteCourse::Kind::kNorm
         : role == SeriesRole::kEvaluationLoss || role == SeriesRole::kPerplexity ||
                 role == SeriesRole::kLikelihood || IsPolicyMetric(role)
             ? NonFiniteCourse::Kind::kEvaluation
             : NonFiniteCourse::Kind::kTraining;
}

void TakeItem(const Item& item, NonFiniteSeries* series, NonFiniteRow* row,
              std::vector<uint32_t>* bad) {
  if (!item.evidence->has_scalar()) return;
  const double value = item.evidence->scalar().value();
  ++series->values;
  ++row->values;
  const uint32_t rank = item.source->rank();
  if (series->ranks.size() < NonFiniteSeries::kMostRanks) series->ranks.insert(rank);
  const bool counts = series->role == SeriesRole::kNanCount;
  if (counts ? value <= 0 : std::isfinite(value)) {
    row->finite = value;
    return;
  }
  if (row->bad++ == 0) row->nan = counts || std::isnan(value);
  if (bad->empty() || bad->back() != rank) bad->push_back(rank);
}

}  // namespace

bool MayLackReward(const std::string& op, SeriesRole role) {
  if (role != SeriesRole::kReward || op.find("critic/") != op.npos) return false;  // verl
  for (const char* const word : {"rewards/", "ep_", "episod", "return"}) {
    if (op.find(word) != op.npos) return true;
  }
  return false;
}

bool HasMargin(const std::string& op) {
  constexpr std::string_view kWords[] = {"hinge",  "svm",     "perceptron",
                                         "margin", "triplet", "ranking"};
  return HasAnyWord(PlainWordsOf(op), kWords);
}

ZeroLoss::Norm Stronger(ZeroLoss::Norm a, ZeroLoss::Norm b) {
  using Norm = ZeroLoss::Norm;
  for (const Norm norm : {Norm::kLost, Norm::kFinite, Norm::kZero}) {
    if (a == norm || b == norm) return norm;
  }
  return Norm::kAbsent;
}

ZeroLoss::Norm NormOf(const NonFiniteRow& row) {
  return row.bad > 0       ? ZeroLoss::Norm::kLost
         : row.finite == 0 ? ZeroLoss::Norm::kZero
                           : ZeroLoss::Norm::kFinite;
}

void NonFiniteSeries::Begin(SeriesRole its_role, int64_t step) {
  role = its_role;
  course = NonFiniteCourse(CourseOf(role));
  step_first = step_last = step;
}

NonFiniteRow NonFiniteSeries::Gather(const SiteStep& step, std::vector<uint32_t>* bad) {
  step_first = std::min(step_first, step.step);
  step_last = std::max(step_last, step.step);
  const bool over = std::any_of(step.missing_ranks.begin(), step.missing_ranks.end(),
                                [&](uint32_t rank) { return ranks.contains(rank); });
  if (over && !step.late) ++closed_over;
  NonFiniteRow row;
  row.step = step.step;
  for (const Item& item : step.items) TakeItem(item, this, &row, bad);
  return row;
}

void NonFiniteSeries::TakePlain(const ScalarRows& rows, const ScalarColumn& column, size_t first,
                                size_t count) {
  const double last = column.value(first + count - 1);
  step_first = std::min(step_first, rows.steps[first]);
  step_last = std::max(step_last, rows.steps[first + count - 1]);
  values += count;
  if (ranks.size() < kMostRanks) ranks.insert(column.source().rank());
  course.TakeFinite(count, last);
  if (role != SeriesRole::kLoss) return;
  zero.before = last;
  for (size_t i = first; i < first + count; ++i)
    largest = std::max(largest, std::fabs(column.value(i)));
  for (size_t i = first + count - std::min(count, kNewest); i < first + count; ++i)
    Keep(column.value(i));
}

size_t NonFiniteSeries::PlainRows(const ScalarRows& rows, const ScalarColumn& column, size_t first,
                                  size_t most) const {
  if (!course.calm() || course.attempt() != rows.end.attempt || zero.rows > 0) return 0;
  size_t count = 0;
  if (role == SeriesRole::kNanCount) {
    while (count < most && column.value(first + count) <= 0) ++count;
    return count;
  }
  if (role != SeriesRole::kLoss) return most;
  while (count < most && column.value(first + count) != 0) ++count;
  return count;
}

NonFiniteSeries::Zero NonFiniteSeries::TakeZero(const NonFiniteRow& row, ZeroLoss::Norm norm,
                                                bool may_be_zero, ZeroLoss* before) {
  if (row.bad > 0 || row.finite != 0) {
    *before = zero;
    zero_before |= zero.rows > 0;
    zero = {};
    zero.before = before->before;
    if (row.bad == 0) {
      zero.before = row.finite;
      largest = std::max(largest, std::fabs(row.finite));
      Keep(row.finite);
    }
    return before->reported ? Zero::kOver : Zero::kNothing;
  }
  if (zero.rows++ == 0) zero.first = row.step;
  zero.last = row.step;
  zero.norm = Stronger(zero.norm, norm);
  if (zero.reported || !LooksMasked(may_be_zero, false)) return Zero::kNothing;
  zero.reported = true;
  return Zero::kReported;
}

void NonFiniteSeries::Keep(double value) {
  if (newest.size() == kNewest) newest.erase(newest.begin());
  newest.push_back(value);
}

bool NonFiniteSeries::StandsFarFromZero() const {
  constexpr size_t kFewestDistinct = 4;  // else they are rounded
  constexpr double kNoise = 0.15, kLeft = 0.5;
  if (newest.size() < kNewest) return false;
  const double slope = analysis::TheilSen({}, newest).slope;
  std::vector<double> sorted = newest;
  const double level = std::fabs(analysis::MedianOf(sorted));
  const auto lowest = std::min_element(
      newest.begin(), newest.end(), [](double a, double b) { return std::fabs(a) < std::fabs(b); });
  const double next = std::fabs(newest.back() + slope);
  const bool distinct = std::set<double>(newest.begin(), newest.end()).size() >= kFewestDistinct;
  return distinct && analysis::SigmaAboutLine(newest) <= kNoise * level &&
         std::fabs(*lowest) >= kLeft * level && next >= kLeft * level;
}

// Returns true if the loss falls so fast that its next value would be below 0.6 of the newest one.
bool NonFiniteSeries::FallsToZero() const {
  constexpr size_t kDifferences = 3;
  constexpr double kNext = 0.6;
  if (newest.size() <= kDifferences) return false;
  std::vector<double> falls;
  for (size_t i = newest.size() - kDifferences; i < newest.size(); ++i)
    falls.push_back(std::fabs(newest[i]) - std::fabs(newest[i - 1]));
  return std::fabs(newest.back()) + analysis::MedianOf(falls) < kNext * std::fabs(newest.back());
}

// Returns true if a loss of exactly 0 is probably a NaN that the log hides. This is so if the
// gradient norm is not finite too. It is also so if the loss becomes 0 at once, from far above 0 or
// from the first row on, and no norm shows gradients.
bool NonFiniteSeries::LooksMasked(bool may_be_zero, bool at_the_end) const {
  constexpr uint64_t kRows = 3, kRowsOfNothing = 8, kRowsToGoOn = 32;
  constexpr double kFar = 0.2;  // share of the largest value: further than a hinge that fades to 0
  if (zero.norm == ZeroLoss::Norm::kFinite || zero.rows == 0) return false;
  if (zero.norm == ZeroLoss::Norm::kLost) return zero.rows >= 2 || at_the_end;
  const bool nothing = zero.norm == ZeroLoss::Norm::kZero;
  const uint64_t enough = !at_the_end ? kRowsToGoOn : nothing ? kRowsOfNothing : kRows;
  if (zero.rows < enough || may_be_zero || zero_before) return false;
  const bool near = std::fabs(zero.before) < std::max(0.01, kFar * largest);
  return (!near && !FallsToZero()) || StandsFarFromZero();
}

}  // namespace plumbline::rules
