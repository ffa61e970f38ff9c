// Decides whether results that agree on part of the elements can only come from one all-reduce.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/collective/analysis.h"
#include "analysis/collective/case/case.h"

namespace plumbline::analysis {

enum class SharedResult : uint8_t { kYes, kNoInputs, kByRounding, kByGroup };

// Returns kYes if the results of `split`, which differ on some ranks, come from one all-reduce.
// Otherwise the ranks may keep results of their own by design: results of groups agree in most
// elements if their inputs are nearly equal, as do results to which each rank adds a small part of
// its own. Required:
// - Differences beyond rounding prevail (OutputSplit::clear). Results that differ everywhere by
//   that much agree nowhere.
// - Some ranks have one result, bit for bit: a strict majority, or a replay gives this result.
// - It is the sum over all ranks: a replay gives it, or, on the elements that agree, it is within
//   the bound of a multiple of that sum, and every multiple of the sum over a contiguous or strided
//   group of at most half of the ranks is twice as far from it (root mean square).
SharedResult FindShared(const ReductionAnalysis& a, const OutputSplit& split);

// Returns ranks whose results differ although replays give each of them from the inputs of all
// ranks, however few bits agree. Otherwise nullopt: ranks may keep results of their own by design.
// Every result must be within the bound of sums. The first four different ones are replayed, in the
// given order of the ranks and in those that begin with the result's own rank or node, on all
// elements, and each two of them must differ on 32 elements or more: a result that is not a sum
// over all ranks would have to agree with a candidate on all of them by chance.
std::optional<OutputSplit> SplitReplayed(const ReductionAnalysis& a);

// Returns the finding on results of one all-reduce that differ; `replayed`: found by SplitReplayed.
v1::Verdict ResultsDiffer(const JoinedReduction& joined, const OutputSplit& split, bool replayed);

}  // namespace plumbline::analysis
