// Products by cuBLASLt on device 0, optimised for repeated calls: a call is one copy up, the
// product and one copy down on one stream.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/gpu/gemm/cublas_lt.h"
#include "bench/gpu/gemm/matmul.h"

namespace plumbline::bench {

// Holds memory for the largest of `products`, on the device and pinned on the host, until it is
// destroyed. Returns Internal if CUDA or cuBLASLt did not start.
absl::StatusOr<std::unique_ptr<MatmulLibrary>> OpenCublasMatmuls(
    const CublasLt& lt, const std::vector<Product>& products);

}  // namespace plumbline::bench
