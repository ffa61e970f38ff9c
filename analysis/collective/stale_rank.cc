#include "analysis/collective/stale_rank.h"

#include <algorithm>

namespace plumbline::analysis {

StaleRank EarlierInputs::Find(const Place& place, const ReductionAnalysis& a, int64_t step) const {
  const auto at = kept_.find(place);
  if (at == kept_.end() || !a.replayed || a.replay.explained) return {};
  const Kept& kept = at->second;
  if (kept.step >= step || kept.ranks != a.c.ranks) return {};
  std::map<uint64_t, size_t> index;
  for (size_t i = 0; i < kept.offsets.size(); ++i) index[kept.offsets[i]] = i;
  std::vector<int32_t> here;
  std::vector<size_t> before;
  for (int32_t i = 0; i < a.c.samples; ++i) {
    const auto found = index.find(a.c.offsets[static_cast<size_t>(i)]);
    if (found == index.end()) continue;
    here.push_back(i);
    before.push_back(found->second);
  }
  if (here.empty()) return {};
  ReductionCase c;
  static_cast<ReductionFrame&>(c) = a.c;
  c.samples = static_cast<int>(here.size());
  for (const int32_t i : here) {
    c.output.push_back(a.c.output[static_cast<size_t>(i)]);
    c.offsets.push_back(a.c.offsets[static_cast<size_t>(i)]);
  }
  for (int r = 0; r < a.c.ranks; ++r)
    for (const int32_t i : here) c.inputs.push_back(a.c.input(r, i));
  StaleRank out;
  static_cast<ReplacedRank&>(out) =
      FindReplacedRank(c, SumColumnsOf(c), [&](int row, int32_t sample) -> double {
        return kept.inputs[static_cast<size_t>(row) * kept.offsets.size() +
                           before[static_cast<size_t>(sample)]];
      });
  out.step = kept.step;
  return out;
}

void EarlierInputs::Keep(const Place& place, const ReductionAnalysis& a, int64_t step) {
  const ReductionCase& c = a.c;
  const bool holds = c.samples > 0 && FormatOf(c.input_dtype).precision <= 24;
  const auto at = kept_.find(place);
  if (at != kept_.end()) {
    if (at->second.step >= step) return;
    values_ -= at->second.inputs.size();
    kept_.erase(at);
  }
  const size_t elements = std::min(static_cast<size_t>(c.samples), kMostElements);
  if (!holds || values_ + elements * static_cast<size_t>(c.ranks) > kMostValues) return;
  Kept& kept = kept_[place];
  kept.step = step;
  kept.ranks = c.ranks;
  for (size_t i = 0; i < elements; ++i) kept.offsets.push_back(c.offsets[i]);
  for (int r = 0; r < c.ranks; ++r)
    for (size_t i = 0; i < elements; ++i)
      kept.inputs.push_back(static_cast<float>(c.input(r, static_cast<int32_t>(i))));
  values_ += kept.inputs.size();
}

}  // namespace plumbline::analysis
