// The statistics of a tensor that lies in a file, read in pieces.
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

// Reads tensors one after the other through buffers of its own: twice kPieceBytes and less, however
// large they are. Not thread-safe; uses several threads for large tensors.
class TensorScan {
 public:
  static constexpr size_t kPieceBytes = size_t{16} << 20;
  // Gets a tensor's bytes piece by piece, in C order and lowest byte first: whole elements, of all
  // pieces but the last as many as TensorMeter wants.
  using Sink = std::function<absl::Status(const std::byte* data, size_t bytes)>;

  // Of a tensor that passed CheckStored, of a dtype that is read. The digest is that of its dense
  // C-ordered elements, lowest byte first, whatever its strides and byte order. `rows` and
  // `sample`, which may be nullptr, get the same bytes.
  absl::Status Measure(const InputFile& file, const StoredTensor& tensor, TensorStats* stats,
                       RowDigests* rows = nullptr, ElementSample* sample = nullptr);
  // The same bytes of all elements, which are to fit in memory.
  absl::Status Read(const InputFile& file, const StoredTensor& tensor,
                    std::vector<std::byte>* elements);
  absl::Status Stream(const InputFile& file, const StoredTensor& tensor, const Sink& sink);

 private:
  std::vector<std::byte> dense_, source_;
};

}  // namespace plumbline::audit
