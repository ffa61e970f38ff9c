// Dumps elements of a product of random data for plumb audit (docs/tensor_dumps.md, matmul).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "bench/gpu/gemm/gemm_product.h"
#include "bench/gpu/gemm/matmul.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::bench {

// Uses normal factors, the same for all products of one dtype and K, and up to 256 elements, of as
// many rows and columns as need at most 256 KiB. Overwrites matmul->factors(). Returns the status
// of Matmul::Compute.
absl::StatusOr<audit::testing::Dump> MatmulDump(const Product& product, const std::string& library,
                                                Matmul* matmul);

}  // namespace plumbline::bench
