// cuBLASLt's functions over host memory, for a table of them (bench/gpu/gemm/cublas_lt.h): the last
// rows of A times the first columns of B, left folds in f32, K in as many parts as the algorithm
// says. One of it in the process: not thread-safe.
#pragma once

#include "bench/gpu/gemm/cublas_lt.h"

namespace plumbline::bench {

// What it was last asked, and what it is to answer.
struct FakeCublasLt {
  int heuristic_rows = 0;
  int checked_rows = 0;
  uint32_t a_alignment = 0;
  // Of the last product, over all of A and B.
  int rows_not_zero = 0;
  int columns_not_zero = 0;
  cublasStatus_t matmul = CUBLAS_STATUS_SUCCESS;  // of every product
  cudaError_t synchronize = cudaSuccess;          // of the stream
};

// A fresh one; the former is forgotten. Splits are taken in place and in the compute type, by an
// algorithm that the heuristics do not name.
FakeCublasLt& NewFakeCublasLt();
CublasLt FakeCublasLtTable();

}  // namespace plumbline::bench
