// Keeps a sample of a tensor's elements while its bytes are read. The sampled places are the same
// in each checkpoint, and for a weight, its moments and its average, so that values can be
// compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "audit/readers/checkpoint/stored_tensor.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// Chooses the elements: kernels/core/sample_index.h, with one key for all. Tensors of one size have
// the same sample, so a few lists are cached. In a square matrix, half of the elements are the
// mirrored ones of the others, so that a transposed matrix is recognised. Not thread-safe.
class SampledElements {
 public:
  static constexpr uint64_t kMostElements = 2048;

  // Returns the sample size per tensor for a checkpoint with `tensors` tensors: 2^22 elements in
  // total, and a power of two.
  static uint64_t MostOf(size_t tensors);
  // Returns ascending indices of elements, at most `most` of them.
  std::shared_ptr<const std::vector<uint64_t>> Of(const std::vector<int64_t>& shape, uint64_t count,
                                                  uint64_t most);

 private:
  using Key = std::tuple<uint64_t, uint64_t, bool>;  // number of elements, most, square
  std::map<Key, std::shared_ptr<const std::vector<uint64_t>>> known_;
};

// Not thread-safe.
class ElementSample {
 public:
  // `tensor` has a supported dtype; `indices` are ascending.
  ElementSample(const StoredTensor& tensor, std::shared_ptr<const std::vector<uint64_t>> indices);
  // Adds the next bytes of the tensor, which are whole elements in C order.
  void Add(const std::byte* data, size_t size);
  // Stores the sampled values and their ascending indices in C order.
  void Fill(v1::TensorSample* out) const;

 private:
  DType dtype_;
  size_t width_ = 0;
  std::shared_ptr<const std::vector<uint64_t>> indices_;
  size_t next_ = 0;  // index into indices_
  uint64_t at_ = 0;  // number of elements added
  std::vector<std::byte> values_;
};

}  // namespace plumbline::audit
