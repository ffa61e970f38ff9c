// A sum as a black box: n addends go in, one number comes out.
//
// Dots, products of matrices and collectives are seen the same way: y = sum of a[i] * b[i], of
// which one element of the output is watched. Whoever provides the target places a and b (a row and
// a column of a product, one element of each rank's buffer) and reads y.
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
// False: no kind has this name.
bool ParseKind(const std::string& name, Kind* kind);

struct Target {
  // Both spans have n values, representable in `input`; b is all ones where there are no products.
  // A non-OK status ends the fingerprint with that status.
  using Call = std::function<absl::Status(absl::Span<const double> a, absl::Span<const double> b,
                                          double* y)>;
  // The same in a batch of `batch` >= 1 rows, of which one is watched: does y change with it?
  using BatchedCall = std::function<absl::Status(int batch, absl::Span<const double> a,
                                                 absl::Span<const double> b, double* y)>;

  std::string name;     // of the function
  std::string library;  // where it lives; may be empty
  Kind kind = Kind::kSum;
  int n = 0;
  DType input = DType::kF32;
  DType output = DType::kF32;
  Call call;
  BatchedCall batched;  // may be empty
};

}  // namespace plumbline::sums
