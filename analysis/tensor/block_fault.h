// The faults of the scales of most blocks, for a tensor or a factor of a product.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "analysis/frame/frame.h"

namespace plumbline::analysis {

inline constexpr uint64_t kFewBlocks = 64;     // fewer blocks give no verdict
inline constexpr double kShareOfBlocks = 0.1;  // customary: from this share on it is a finding

struct BlockFault {
  uint64_t blocks;
  const char* cause;
  const char* words;  // "... of 128 blocks <words>"
};

// Returns the fault with most blocks. If several are equal, returns the first.
inline const BlockFault& MostFrequent(std::span<const BlockFault> faults) {
  return *std::max_element(
      faults.begin(), faults.end(),
      [](const BlockFault& a, const BlockFault& b) { return a.blocks < b.blocks; });
}

// Builds a warning. `share` is relative to the blocks that have a value.
inline v1::Verdict BlockFaultFinding(const BlockFault& fault, double share, std::string title,
                                     std::string explanation, std::string fix) {
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC)
      .Title(std::move(title))
      .Explain(std::move(explanation))
      .Cause(fault.cause, 0.5)
      .Measured("share of the blocks", share, "share")
      .Threshold(kShareOfBlocks, "customary")
      .Fix(std::move(fix))
      .Take();
}

}  // namespace plumbline::analysis
