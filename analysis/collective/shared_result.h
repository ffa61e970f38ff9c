// Decides whether results that agree on part of the elements can only come from one all-reduce.
#pragma once

#include <cstdint>
#include <string>

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

// Returns the finding on results of one all-reduce that differ. `names` are the odd ranks in words.
v1::Verdict ResultsDiffer(const JoinedReduction& joined, const OutputSplit& split,
                          const std::string& names);

}  // namespace plumbline::analysis
