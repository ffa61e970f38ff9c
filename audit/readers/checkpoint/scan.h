// Computes the statistics of a tensor in a file, in pieces.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "audit/readers/checkpoint/element_sample.h"
#include "audit/readers/checkpoint/row_digests.h"
#include "audit/readers/checkpoint/stored_tensor.h"
#include "audit/readers/input/file.h"
#include "kernels/tensor/stats.h"

namespace plumbline::audit {

// Reads one tensor after another through its own buffers: at most twice kPieceBytes, whatever the
// tensor's size. Not thread-safe; uses several threads for large tensors.
class TensorScan {
 public:
  static constexpr size_t kPieceBytes = size_t{16} << 20;
  // Receives a tensor's bytes piece by piece, in C order and lowest byte first. Pieces hold whole
  // elements; all but the last have a size that TensorMeter accepts.
  using Sink = std::function<absl::Status(const std::byte* data, size_t bytes)>;

  // Measures a tensor of a supported dtype that passed CheckStored. The digest is of the elements
  // in dense C order, lowest byte first. It does not depend on strides and byte order. If `rows`
  // and `sample` are not nullptr, they receive the same bytes.
  absl::Status Measure(const InputFile& file, const StoredTensor& tensor, TensorStats* stats,
                       RowDigests* rows = nullptr, ElementSample* sample = nullptr);
  // Reads all elements into memory, in the same order as Measure.
  absl::Status Read(const InputFile& file, const StoredTensor& tensor,
                    std::vector<std::byte>* elements);
  absl::Status Stream(const InputFile& file, const StoredTensor& tensor, const Sink& sink);

 private:
  std::vector<std::byte> dense_, source_;
};

}  // namespace plumbline::audit
