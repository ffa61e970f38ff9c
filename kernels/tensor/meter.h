// The statistics of a tensor that arrives in pieces, and so may be larger than memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/tensor/stats.h"
#include "kernels/tensor/totals.h"

namespace plumbline {

// Takes the dense elements of one host tensor in C order. The result is that of MeasureTensor, in
// every bit, for any pieces. Not thread-safe.
class TensorMeter {
 public:
  // The size of each piece except the last is a multiple of this number of elements.
  static constexpr int64_t kPieceElements = 32768;

  // A known dtype.
  explicit TensorMeter(DType dtype);

  // Takes the next `count` elements, of any alignment, and reads them before it returns, with
  // `threads` threads. Returns FailedPrecondition if the size of the previous piece was not a
  // multiple of kPieceElements.
  absl::Status Add(const void* data, int64_t count, int threads = 1);
  TensorStats Finish() const { return totals_.Finish(); }

 private:
  TensorTotals totals_;
  int64_t taken_ = 0;  // elements
};

}  // namespace plumbline
