// A matrix product of which a corner is computed repeatedly: the rest of A and B is zero.
//
// Implemented by cuBLASLt if there is a GPU, and by a loop on the host in tests.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/gpu/gemm/gemm_product.h"

namespace plumbline::bench {

// The library's numbers; -1: not stated.
struct Algorithm {
  int id = -1;
  int tile = -1;
  int stages = -1;
  int split_k = -1;
  int reduction = -1;
  int swizzling = -1;
  int custom = -1;
  int inner_shape = -1;
  int cluster_shape = -1;
  size_t workspace_bytes = 0;
  double waves = 0;
};

// Returns true if Compute's status is a refusal, after which a caller can continue with the next
// product. Any other error is one of the device, after which nothing works.
inline bool IsRefusal(const absl::Status& status) { return absl::IsUnimplemented(status); }

// Not thread-safe.
class Matmul {
 public:
  static constexpr int kMostLines = 32;  // rows, and columns, that are not zero

  virtual ~Matmul() = default;
  virtual const Algorithm& algorithm() const = 0;
  // Returns space for 2 kMostLines lines of K factors: rows of A, then columns of B, each
  // contiguous. Owned by this object; the caller writes to it.
  virtual std::byte* factors() = 0;
  // Uses the first `lines` rows and then `lines` columns of factors() as the last rows of A and the
  // first columns of B. Sets *d to their elements of D, column by column, valid until the next
  // call.
  virtual absl::Status Compute(int lines, const std::byte** d) = 0;
  // Computes with one line and `rows` rows in A, 1 to 128, with the algorithm chosen for that.
  virtual absl::Status ComputeBatch(int rows, const std::byte** d) = 0;
};

// Not thread-safe. Must outlive its products, of which one is open at a time.
class MatmulLibrary {
 public:
  virtual ~MatmulLibrary() = default;
  virtual std::string name() const = 0;  // with the version
  // Opens a product. A refusal (IsRefusal) names the function that refused, and the reason.
  virtual absl::StatusOr<std::unique_ptr<Matmul>> Open(const Product& product) = 0;
};

}  // namespace plumbline::bench
