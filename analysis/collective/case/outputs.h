// Compares the results of one collective's ranks, to find ranks with equal results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/collective/case/join.h"

namespace plumbline::analysis {

// Ranks whose results differ, although they belong to one reduction, because at least half of at
// least 64 non-zero values agree.
struct OutputSplit {
  std::vector<uint32_t> ranks;  // all ranks that reported, ascending by group rank
  std::vector<uint32_t> odd;    // ranks with another result; all ranks if no majority exists
  bool majority = false;        // a strict majority of the ranks has the same result
  uint64_t compared = 0;        // number of compared values
  uint64_t differ = 0;          // number of these that differ between the two ranks below
  uint64_t element = 0;         // index in the flattened buffer of the first value that differs
  uint32_t rank_a = 0, rank_b = 0;
  double value_a = 0, value_b = 0;
  // On every odd rank, half of the differences are large: at least four units in the last place
  // (two, if one rank of three or more is odd) of the element and of nearly all smaller elements
  // that agree.
  bool clear = true;

  bool equal() const { return odd.empty(); }
};

// Returns nullopt if there are fewer than two results of one dtype, count and elements, or if the
// results do not belong to one reduction (a reduce to one root, a scatter, averages that are
// separate by design). NaN equals NaN, and +0 equals -0.
std::optional<OutputSplit> SplitOutputs(const JoinedReduction& joined);

}  // namespace plumbline::analysis
