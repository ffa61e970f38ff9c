// What differs first between two tensors, to the bit, whatever their layouts.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "audit/checkpoints/pieces.h"
#include "audit/checkpoints/side.h"

namespace plumbline::audit {

struct BitDifference {
  std::string text;  // "element [3, 4] is 0.25 in A, 0.5 in B (12 of 64 differ)"; empty: equal
  std::string how;   // equal, but not rank after rank: how the parts were laid together
};

// Both of a dtype that is read. Shards against a merged tensor: rank after rank, else by blocks
// (InterleavedLayouts); one of these that makes them equal is told in `how`.
absl::StatusOr<BitDifference> FindBitDifference(const ComparedTensor& a, const ComparedTensor& b,
                                                PieceReader* reader);

// Element i as text that no other bits of its dtype have: integers whole, "-0", a NaN with its
// bits.
std::string ElementText(const std::byte* data, DType dtype, int64_t i);

}  // namespace plumbline::audit
