// What is wrong with the scales of most blocks, of a tensor or of a product's factor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "analysis/frame/frame.h"

namespace plumbline::rules {

inline constexpr uint64_t kFewBlocks = 64;     // fewer say nothing
inline constexpr double kShareOfBlocks = 0.1;  // customary: from here on it is a finding

struct BlockFault {
  uint64_t blocks;
  const char* cause;
  const char* words;  // "... of 128 blocks <words>"
};

// Of equals the first.
inline const BlockFault& MostFrequent(std::span<const BlockFault> faults) {
  return *std::max_element(
      faults.begin(), faults.end(),
      [](const BlockFault& a, const BlockFault& b) { return a.blocks < b.blocks; });
}

// A warning; `share`: of the blocks that have a value.
inline v1::Verdict BlockFaultFinding(const BlockFault& fault, double share, std::string title,
                                     std::string explanation, std::string fix) {
  return MakeFinding({.level = v1::LEVEL_WARNING,
                      .strength = v1::STRENGTH_HEURISTIC,
                      .title = std::move(title),
                      .explanation = std::move(explanation),
                      .cause = fault.cause,
                      .measured = "share of the blocks",
                      .value = share,
                      .unit = "share",
                      .threshold = kShareOfBlocks,
                      .threshold_source = "customary",
                      .fix = std::move(fix),
                      .confidence = 0.5});
}

}  // namespace plumbline::rules
