// A matrix product of which a corner is computed again and again: the rest of A and B is zero.
//
// cuBLASLt is behind it where there is a GPU, a loop on the host in tests.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/gpu/gemm/gemm_product.h"

namespace plumbline::bench {

// As the library numbers them; -1: it did not say.
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

// Of Compute: what a refusal is to a caller that goes on with the next product. Any other status is
// an error of the device, after which nothing works.
inline bool IsRefusal(const absl::Status& status) { return absl::IsUnimplemented(status); }

// Not thread-safe.
class Matmul {
 public:
  static constexpr int kMostLines = 32;  // rows, and columns, that are not zero

  virtual ~Matmul() = default;
  virtual const Algorithm& algorithm() const = 0;
  // For 2 kMostLines lines of K factors: rows of A, then columns of B, each contiguous. Owned by
  // this; the caller writes it.
  virtual std::byte* factors() = 0;
  // Takes the first `lines` rows and then `lines` columns of factors() for the last rows of A and
  // the first columns of B. *d: their elements of D, column after column, until the next call.
  virtual absl::Status Compute(int lines, const std::byte** d) = 0;
  // The same with one line and `rows` rows in A, 1 to 128, by the algorithm chosen for that.
  virtual absl::Status ComputeBatch(int rows, const std::byte** d) = 0;
};

// Not thread-safe; outlives its products, of which one is open at a time.
class MatmulLibrary {
 public:
  virtual ~MatmulLibrary() = default;
  virtual std::string name() const = 0;  // with the version
  // A refusal (IsRefusal) says which function refused and why.
  virtual absl::StatusOr<std::unique_ptr<Matmul>> Open(const Product& product) = 0;
};

}  // namespace plumbline::bench
