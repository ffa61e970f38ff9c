// What the ranks of one collective got back: who got the same values, and who others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/collective/case/join.h"

namespace plumbline::rules {

// Ranks whose results differ, though they are results of one reduction: half of at least 64 values
// that are not zero agree.
struct OutputSplit {
  std::vector<uint32_t> ranks;  // all that reported, ascending by group rank
  std::vector<uint32_t> odd;    // those with another result; all of them where no majority has one
  bool majority = false;        // a strict majority has one result
  uint64_t compared = 0;        // values
  uint64_t differ = 0;          // of these, between the two ranks below
  uint64_t element = 0;         // the first that differs, index in the flattened buffer
  uint32_t rank_a = 0, rank_b = 0;
  double value_a = 0, value_b = 0;

  bool equal() const { return odd.empty(); }
};

// nullopt: fewer than two results of one dtype, count and elements, or results that are not those
// of one reduction (a reduce to one root, a scatter, averages that are kept apart by design). NaN
// equals NaN, and zeros are equal.
std::optional<OutputSplit> SplitOutputs(const JoinedReduction& joined);

}  // namespace plumbline::rules
