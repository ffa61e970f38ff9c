#include "analysis/collective/cut_inputs.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/collective/replay/replay.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kFewestCut = 32;

ReductionCase WithInputsIn(const ReductionCase& c, DType t) {
  ReductionCase out = c;
  for (double& x : out.inputs) x = RoundToFormat(x, t, RoundingMode::kTowardZero);
  return out;
}

// Returns the distinct changes of the sums by the cut, relative to the sum, that a result shows. If
// the results are not closer to the cut sums, returns none.
std::set<double> ShownChanges(const ReductionCase& c, const std::vector<SumColumn>& columns,
                              const std::vector<SumColumn>& cut) {
  std::set<double> shown;
  double left = 0, all = 0;
  if (columns.size() != cut.size()) return shown;
  for (size_t i = 0; i < columns.size(); ++i) {
    const double y = c.output[static_cast<size_t>(columns[i].sample)], s = columns[i].exact;
    if (!(columns[i].mass > 0) || !std::isfinite(y)) continue;
    all += std::pow((y - s) / columns[i].mass, 2);
    left += std::pow((y - cut[i].exact) / columns[i].mass, 2);
    if (std::fabs(cut[i].exact - s) > 2 * UlpOf(s, c.result_dtype()))
      shown.insert(cut[i].exact / s);
  }
  return 2 * left < all ? shown : std::set<double>{};
}

}  // namespace

CutInputs FindCutInputs(const ReductionCase& c, const std::vector<SumColumn>& columns) {
  if (c.input_dtype != DType::kF32) return {};
  for (const DType t : {DType::kBF16, DType::kF16}) {
    ReductionCase cut = WithInputsIn(c, t);
    const std::set<double> shown = ShownChanges(c, columns, SumColumnsOf(cut));
    if (shown.size() < kFewestCut) continue;
    ReductionReplay replay = ReplayReduction(cut);
    if (!replay.explained && !c.wire_declared) {
      cut.wire_dtype = t;
      replay = ReplayReduction(cut);
    }
    if (!replay.explained || replay.distinct < static_cast<int32_t>(kFewestCut)) continue;
    CutInputs out{t, replay.matches, static_cast<int32_t>(shown.size())};
    double products = 0, sums = 0;
    for (const SumColumn& column : columns) {
      products += c.output[static_cast<size_t>(column.sample)] * (column.exact < 0 ? -1 : 1);
      sums += std::fabs(column.exact);
    }
    out.bias = products / sums - 1;
    return out;
  }
  return {};
}

}  // namespace plumbline::analysis
