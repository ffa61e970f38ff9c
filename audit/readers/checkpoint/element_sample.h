// A few elements of a tensor, kept while its bytes stream by: the same ones in each checkpoint, and
// the same of a weight, its moments and its average, so that they can be held against each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "audit/readers/checkpoint/stored_tensor.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// Not thread-safe.
class ElementSample {
 public:
  static constexpr uint64_t kMostElements = 2048;

  // A tensor of a known dtype. Which elements: kernels/core/sample_index.h, under one key for all.
  explicit ElementSample(const StoredTensor& tensor);
  // The next bytes of its elements in C order; whole elements.
  void Add(const std::byte* data, size_t size);
  // The values that were seen, with their indices in C order, ascending.
  void Fill(v1::TensorSample* out) const;

 private:
  DType dtype_;
  size_t width_ = 0;
  std::vector<uint64_t> indices_;  // ascending
  size_t next_ = 0;                // of indices_
  uint64_t at_ = 0;                // elements that came by
  std::vector<std::byte> values_;
};

}  // namespace plumbline::audit
