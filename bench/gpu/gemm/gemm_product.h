// The matrix products that gpu_gemm probes: their names and estimated costs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace plumbline::bench {

// The computation type of cuBLAS, named like its CUBLAS_COMPUTE_ constants.
enum class Compute : uint8_t { k32F, k32FPedantic, k32FFastTF32, k16F, k64F };
const char* ComputeName(Compute compute);  // "32F", "32F_PEDANTIC", ...

// How the parts of a split K are added; values of cublasLtReductionScheme_t.
enum class Reduction : uint8_t { kNone = 0, kInPlace = 1, kComputeType = 2, kOutputType = 4 };
const char* ReductionName(Reduction reduction);  // "none", "inplace", "compute", "output"

// D [rows, columns] = A [rows, inner] B [inner, columns].
struct Shape {
  int rows = 0;
  int columns = 0;
  int inner = 0;
  bool operator==(const Shape&) const = default;
};

struct Product {
  DType input = DType::kF32;
  DType output = DType::kF32;
  Compute compute = Compute::k32F;
  bool fast_accumulation = false;  // for fp8: partial sums stay in the tensor core
  Shape shape;
  Shape algorithm;  // the shape for which the algorithm is chosen; usually the same
  int split_k = 0;  // 0: the heuristics choose
  Reduction reduction = Reduction::kNone;
  bool dump = false;  // also write elements of a product of random data
};

// Returns a name that is unique in the table and usable as a file name:
// "bf16-f32-32F-512x512x4096-split2-compute".
std::string NameOf(const Product& product);

// Returns the default table, cheapest first.
std::vector<Product> GemmTable();

// Returns a rough estimate of the time of a fingerprint on an H100, in seconds. The number of calls
// depends on the number of addends (8 each if they are added one by one, 4 in the blocks of tensor
// cores). Each call has a launch with its copies, the placing of values on the host, and the
// product's arithmetic or the latency of its longest chain.
double EstimatedSeconds(const Product& product);

}  // namespace plumbline::bench
