// One product for cuBLASLt: descriptors, and an algorithm that was accepted for them.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "bench/gpu/gemm/cublas_lt.h"
#include "bench/gpu/gemm/gemm_product.h"
#include "bench/gpu/gemm/matmul.h"

namespace plumbline::bench {

// A cuBLASLt descriptor and the function that frees it.
template <typename T>
using CublasHandle = std::unique_ptr<std::remove_pointer_t<T>, cublasStatus_t (*)(T)>;

// A is stored row by row, B column by column ("TN", the only layout that fp8 supports), D column by
// column, without gaps. The library must outlive it.
struct CublasPlan {
  CublasHandle<cublasLtMatmulDesc_t> operation;
  CublasHandle<cublasLtMatrixLayout_t> a;
  CublasHandle<cublasLtMatrixLayout_t> b;
  CublasHandle<cublasLtMatrixLayout_t> d;
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace_bytes;
  double waves;
  // 1 and 0 in the type in which the product is scaled.
  alignas(8) std::byte one[8];
  alignas(8) std::byte zero[8];
};

// Resources that an algorithm may use.
struct CublasLimits {
  size_t workspace_bytes = 0;
  uint32_t a_alignment = 256;  // bytes
};

// Returns the heuristics' first algorithm for product.algorithm, if it is accepted for
// product.shape. With split_k, returns the first of theirs, and then of all, that is accepted with
// that split and reduction. A refusal names the step that was refused.
absl::StatusOr<CublasPlan> PlanOf(const CublasLt& lt, cublasLtHandle_t handle,
                                  const Product& product, const CublasLimits& limits);

Algorithm AlgorithmOf(const CublasLt& lt, const CublasPlan& plan);

}  // namespace plumbline::bench
