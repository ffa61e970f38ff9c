// Elements of a product of random data, as plumb audit reads them (docs/tensor_dumps.md, matmul).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "bench/gpu/gemm/gemm_product.h"
#include "bench/gpu/gemm/matmul.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::bench {

// Normal factors, the same for all products of one dtype and K; up to 256 elements, of as many rows
// and columns as make at most 256 KiB. Writes over matmul->factors(). The status is that of
// Matmul::Compute.
absl::StatusOr<audit::testing::Dump> MatmulDump(const Product& product, const std::string& library,
                                                Matmul* matmul);

}  // namespace plumbline::bench
