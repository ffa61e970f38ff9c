// A sum as a black box: takes n addends, returns one number.
//
// Dot products, matrix products and collectives have the same form: y = sum of a[i] * b[i], where
// one element of the output is observed. The provider of the target places a and b (a row and a
// column of a product, one element of each rank's buffer) and reads y.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/dtype.h"

namespace plumbline::sums {

enum class Kind : uint8_t {
  kSum,        // y = sum a[i]; b is not read
  kDot,        // y = sum a[i] b[i]
  kGemm,       // the same, as one element of a matrix product
  kAllReduce,  // a[i] is rank i's value
};

constexpr bool HasProducts(Kind kind) { return kind == Kind::kDot || kind == Kind::kGemm; }
const char* KindName(Kind kind);  // "sum", "dot", "gemm", "all-reduce"
// Returns false if no kind has this name.
bool ParseKind(const std::string& name, Kind* kind);

struct Target {
  // Both spans have n values, representable in `input`. If there are no products, b is all ones. If
  // the status is not OK, the fingerprint ends with that status.
  using Call = std::function<absl::Status(absl::Span<const double> a, absl::Span<const double> b,
                                          double* y)>;
  // The same in a batch of `batch` >= 1 rows, one of which is observed, to test whether y depends
  // on the batch.
  using BatchedCall = std::function<absl::Status(int batch, absl::Span<const double> a,
                                                 absl::Span<const double> b, double* y)>;

  std::string name;     // of the function
  std::string library;  // the library that contains it; may be empty
  Kind kind = Kind::kSum;
  int n = 0;
  DType input = DType::kF32;
  DType output = DType::kF32;
  Call call;
  BatchedCall batched;  // may be empty
};

}  // namespace plumbline::sums
