// Selects the elements that a sampled step keeps of one tensor, before any of them is read: the
// host reads them at once, a device reads them when its stream reaches the launch.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/tensor_view.h"
#include "kernels/core/sample_index.h"

namespace plumbline {

// Either `drawn` single elements, those at SampleIndices(key, count, drawn), or `rows` consecutive
// whole rows of the last axis. Plain data.
struct TensorSample {
  uint64_t key = 0;
  uint64_t count = 0;  // elements of the tensor
  uint64_t drawn = 0;
  bool whole_rows = false;
  int64_t first = 0;  // row
  int64_t rows = 0;
  int64_t width = 0;       // elements of a row
  uint64_t row_bytes = 0;  // > 0: nothing is kept, because one row is larger than `limit`
  uint64_t limit = 0;      // bytes

  int64_t elements() const { return whole_rows ? rows * width : static_cast<int64_t>(drawn); }
  // Writes elements() indices in C order of the tensor, ascending.
  void Indices(uint64_t* out) const;
};

// Returns true for roles whose rules look at whole rows: a softmax's sum, a sequence's positions.
inline bool KeepsRows(std::string_view role) {
  return role == "probabilities" || role == "positions";
}

// Selects at most `most` elements and `limit` bytes; or as many rows as hold `most` elements, at
// least one, from a row that `key` selects. For a tensor that passes CheckTensor with that count,
// on any device.
TensorSample ChooseSample(const TensorView& tensor, int64_t count, bool whole_rows, uint64_t key,
                          uint32_t most, uint64_t limit);

}  // namespace plumbline
