// A tensor of a checkpoint: where it lies, never what it holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace plumbline::audit {

struct StoredTensor {
  DType dtype = DType::kUnspecified;  // kUnspecified: one that is not read (complex, quantised)
  std::string dtype_name;             // as the file has it
  // Of a view that is negated where it is read, which this reader does not: the type of its bits.
  DType negated = DType::kUnspecified;
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;   // elements
  uint64_t begin = 0;            // of element [0, 0, ...], bytes in the file
  uint64_t first = 0, last = 0;  // bytes of its storage: [first, last) in the file
  bool swapped = false;          // its numbers have the highest byte first

  int64_t elements() const {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
  }
  uint64_t bytes() const { return static_cast<uint64_t>(elements()) * DTypeSize(dtype); }
};

// How often a storage may be repeated, beside the first 64 MiB.
inline constexpr uint64_t kMostRepeats = 16;
inline constexpr uint64_t kFreeBytes = uint64_t{64} << 20;

// What is wrong with it: an extent below zero, a product beyond 2^48 elements, more axes than 8, a
// stride below zero, an element outside of its storage, a storage that is repeated more often than
// anybody saves (the work on a file is to be linear in its bytes). Empty: nothing. Of a tensor that
// passed, elements() and bytes() do not overflow and every element may be read.
std::string CheckStored(const StoredTensor& tensor);

// Its elements lie one behind the other in C order.
bool IsDense(const StoredTensor& tensor);

// C order, of the shape.
std::vector<int64_t> DenseStrides(const std::vector<int64_t>& shape);

}  // namespace plumbline::audit
