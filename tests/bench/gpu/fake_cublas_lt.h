// A table of cuBLASLt's functions (bench/gpu/gemm/cublas_lt.h) that compute in host memory. They
// multiply the last rows of A by the first columns of B with left folds in f32, and split K into as
// many parts as the algorithm states. One instance per process; not thread-safe.
#pragma once

#include "bench/gpu/gemm/cublas_lt.h"

namespace plumbline::bench {

// The arguments of the last calls, and the statuses to return.
struct FakeCublasLt {
  int heuristic_rows = 0;
  int checked_rows = 0;
  uint32_t a_alignment = 0;
  // Of the last product, counted over the whole A and B:
  int rows_not_zero = 0;
  int columns_not_zero = 0;
  cublasStatus_t matmul = CUBLAS_STATUS_SUCCESS;  // of every product
  cudaError_t synchronize = cudaSuccess;          // of the stream
};

// Replaces the former instance by a new one. Splits are summed in place and in the compute type, by
// an algorithm that the heuristics do not return.
FakeCublasLt& NewFakeCublasLt();
CublasLt FakeCublasLtTable();

}  // namespace plumbline::bench
