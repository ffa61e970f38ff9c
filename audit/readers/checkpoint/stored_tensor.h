// The place of a checkpoint's tensor in a file, without its values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace plumbline::audit {

struct StoredTensor {
  // kUnspecified: the dtype is not supported (complex, quantised)
  DType dtype = DType::kUnspecified;
  std::string dtype_name;  // name of the dtype in the file
  // For a lazily negated view, which this reader does not support: the dtype of its bits.
  DType negated = DType::kUnspecified;
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;   // strides, in elements
  uint64_t begin = 0;            // offset of element [0, 0, ...], in bytes of the file
  uint64_t first = 0, last = 0;  // its storage is the bytes [first, last) of the file
  bool swapped = false;          // elements are stored with the highest byte first

  int64_t elements() const {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
  }
  uint64_t bytes() const { return static_cast<uint64_t>(elements()) * DTypeSize(dtype); }
};

// Limit for how often strides may repeat a storage. The first 64 MiB are exempt.
inline constexpr uint64_t kMostRepeats = 16;
inline constexpr uint64_t kFreeBytes = uint64_t{64} << 20;

// Returns the error in the tensor, or "" if it has none. Errors are: an extent below zero, more
// than 2^48 elements, more than 8 axes, a stride below zero, an element outside its storage, or a
// storage repeated more often than any writer does (work must be linear in the file's bytes). If
// there is no error, elements() and bytes() do not overflow, and every element may be read.
std::string CheckStored(const StoredTensor& tensor);

// Returns true if the elements are contiguous in C order.
bool IsDense(const StoredTensor& tensor);

// Returns the strides of a dense tensor in C order.
std::vector<int64_t> DenseStrides(const std::vector<int64_t>& shape);

}  // namespace plumbline::audit
