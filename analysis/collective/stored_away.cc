#include "analysis/collective/stored_away.h"

#include "base/half.h"

namespace plumbline::analysis {

StoredAway FindStoredAway(const ReductionCase& c, const std::vector<SumColumn>& columns) {
  constexpr int32_t kFewestAway = 32;
  const DType t = c.result_dtype();
  if (FormatOf(t).precision > FormatOf(DType::kF16).precision) return {};
  StoredAway out;
  double products = 0, squares = 0;
  for (const SumColumn& column : columns) {
    const double y = c.output[static_cast<size_t>(column.sample)];
    const double sum = RoundToFormat(column.exact, DType::kF32);
    const RoundingMode away = sum < 0 ? RoundingMode::kDown : RoundingMode::kUp;
    if (y != RoundToFormat(sum, t, away) && y != RoundToFormat(column.exact, t, away)) return {};
    out.differ += y != RoundToFormat(sum, t) && y != RoundToFormat(column.exact, t) ? 1 : 0;
    if (!(column.mass > 0)) continue;
    const double s = column.exact / column.mass;
    products += y / column.mass * s;
    squares += s * s;
  }
  if (out.differ < kFewestAway || !(squares > 0)) return {};
  out.compared = static_cast<int32_t>(columns.size());
  out.bias = products / squares - 1;
  return out;
}

}  // namespace plumbline::analysis
