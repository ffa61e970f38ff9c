// The place of a checkpoint's tensor in a file, without its values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace plumbline::audit {

struct StoredTensor {
  DType dtype = DType::kUnspecified;  // kUnspecified: not supported (complex, quantised)
  std::string dtype_name;             // as in the file
  // For a lazily negated view, which this reader does not support: the dtype of its bits.
  DType negated = DType::kUnspecified;
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;   // in elements
  uint64_t begin = 0;            // offset of element [0, 0, ...], in bytes of the file
  uint64_t first = 0, last = 0;  // its storage is the bytes [first, last) of the file
  bool swapped = false;          // highest byte first

  int64_t elements() const {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
  }
  uint64_t bytes() const { return static_cast<uint64_t>(elements()) * DTypeSize(dtype); }
};

// How often a storage may be repeated; the first 64 MiB are exempt.
inline constexpr uint64_t kMostRepeats = 16;
inline constexpr uint64_t kFreeBytes = uint64_t{64} << 20;

// Returns what is wrong with the tensor: an extent below zero, more than 2^48 elements, more than 8
// axes, a stride below zero, an element outside its storage, or a storage repeated more often than
// any writer does (work must be linear in the file's bytes). If nothing is wrong, returns "". Then
// elements() and bytes() do not overflow, and every element may be read.
std::string CheckStored(const StoredTensor& tensor);

// Returns true if the elements are contiguous in C order.
bool IsDense(const StoredTensor& tensor);

// Returns the strides of a dense tensor in C order.
std::vector<int64_t> DenseStrides(const std::vector<int64_t>& shape);

}  // namespace plumbline::audit
