// Makes functions of a shared library targets of plumb fingerprint.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "analysis/sums/sums.h"

namespace plumbline::audit {

struct FunctionRequest {
  std::string library;   // a path, or a name that the loader finds
  std::string function;  // sdot, ddot, dsdot, sgemv, dgemv, sgemm, dgemm, with or without cblas_ or
                         // a trailing _; any other symbol needs a kind
  std::string kind;      // "sum" or "dot": T f(const T* a[, const T* b], size_t n)
  std::string dtype;     // dtype of T: f64, f32, f16, bf16 (16-bit types as uint16_t)
  int n = 4096;          // addends of a sum or dot
  int rows = 8;          // of a product's result
  int columns = 8;
  int inner = 0;  // addends of a product; if 0, n is used
};

// Opens the library for the lifetime of the process. Returns InvalidArgument with what was looked
// for if the library cannot be opened, has no such symbol, or the request is incomplete.
absl::StatusOr<sums::Target> FunctionTarget(const FunctionRequest& request);

}  // namespace plumbline::audit
