// The statistics of a tensor that comes in pieces, and so may be larger than memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/tensor/stats.h"
#include "kernels/tensor/totals.h"

namespace plumbline {

// Takes the dense elements of one host tensor in C order. The result is MeasureTensor's, in every
// bit, whatever the pieces. Not thread-safe.
class TensorMeter {
 public:
  // Each piece but the last holds a multiple of so many elements.
  static constexpr int64_t kPieceElements = 32768;

  // A known dtype.
  explicit TensorMeter(DType dtype);

  // The next `count` elements, of any alignment; read before it returns, by `threads` threads.
  // FailedPrecondition: the piece before was no multiple of kPieceElements.
  absl::Status Add(const void* data, int64_t count, int threads = 1);
  TensorStats Finish() const { return totals_.Finish(); }

 private:
  TensorTotals totals_;
  int64_t taken_ = 0;  // elements
};

}  // namespace plumbline
