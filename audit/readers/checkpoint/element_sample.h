// A few elements of a tensor, kept while its bytes stream by: the same ones in each checkpoint, and
// the same of a weight, its moments and its average, so that they can be held against each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "audit/readers/checkpoint/stored_tensor.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// Which elements: kernels/core/sample_index.h, under one key for all. Tensors of one size have the
// same ones, so a few lists are kept. Not thread-safe.
class SampledElements {
 public:
  static constexpr uint64_t kMostElements = 2048;

  // So many a tensor where a checkpoint has `tensors` of them: 2^22 in all, and a power of two.
  static uint64_t MostOf(size_t tensors);
  // Ascending indices below `count`, at most `most` of them.
  std::shared_ptr<const std::vector<uint64_t>> Of(uint64_t count, uint64_t most);

 private:
  std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<const std::vector<uint64_t>>> known_;
};

// Not thread-safe.
class ElementSample {
 public:
  // A tensor of a known dtype; `indices` are ascending.
  ElementSample(const StoredTensor& tensor, std::shared_ptr<const std::vector<uint64_t>> indices);
  // The next bytes of its elements in C order; whole elements.
  void Add(const std::byte* data, size_t size);
  // The values that were seen, with their indices in C order, ascending.
  void Fill(v1::TensorSample* out) const;

 private:
  DType dtype_;
  size_t width_ = 0;
  std::shared_ptr<const std::vector<uint64_t>> indices_;
  size_t next_ = 0;  // of indices_
  uint64_t at_ = 0;  // elements that came by
  std::vector<std::byte> values_;
};

}  // namespace plumbline::audit
