#include "analysis/rates/rate_stem.h"

#include <algorithm>
#include <cmath>

namespace plumbline::analysis {

size_t RateReported::TakeRows(const ScalarRows& rows, const ScalarColumn& column, size_t first,
                              uint32_t attempt) {
  if (rate == nullptr || course == nullptr || groups.size() != 1) return 0;
  const auto of_rank = rate->ranks.find(column.source().rank());
  if (of_rank == rate->ranks.end() || rate->ranks.size() != 1 || !course->GoesOn(attempt)) return 0;
  size_t row = first;
  for (; row < rows.size(); ++row) {
    const double value = column.value(row);
    if (!std::isfinite(value) || value <= 0) break;
    const double size = value;
    if (course->JumpsFromFloor(size)) break;
    of_rank->second.Take(rows.end.attempt, rows.steps[row], size);
    course->Take(attempt, rows.end.world_size, rows.steps[row], size);
  }
  if (row == first) return 0;
  rate->odd.Finite();
  of_rank->second.exact |= IsExact(column.source());
  rate->step_last = std::max(rate->step_last, rows.steps[row - 1]);
  return row - first;
}

}  // namespace plumbline::analysis
