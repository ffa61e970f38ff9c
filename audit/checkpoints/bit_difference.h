// Finds the first element in which two tensors differ in any bit, for any layouts.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "audit/checkpoints/pieces.h"
#include "audit/checkpoints/side.h"

namespace plumbline::audit {

struct BitDifference {
  std::string text;  // "element [3, 4] is 0.25 in A, 0.5 in B (12 of 64 differ)"; empty if equal
  std::string how;   // how the parts were joined, if the tensors are equal but not rank after rank
};

// Compares two tensors whose dtypes are supported. If one side is sharded, the shards are first
// joined rank after rank, then in blocks (InterleavedLayouts). If only a block layout makes the
// tensors equal, `how` names it.
absl::StatusOr<BitDifference> FindBitDifference(const ComparedTensor& a, const ComparedTensor& b,
                                                PieceReader* reader);

// Returns element `i` as text that is unique for its bits in the dtype: integers as integers, "-0",
// a NaN with its bits.
std::string ElementText(const std::byte* data, DType dtype, int64_t i);

}  // namespace plumbline::audit
