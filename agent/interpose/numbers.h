// The constants of the vendors' headers that the interposers need, declared here so that they build
// without those headers. Sources: nccl.h of NCCL 2.18 to 2.28 (ncclDataType_t, ncclRedOp_t,
// ncclUniqueId), cublas_api.h and cublasLt.h of CUDA 12 and 13 (cublasComputeType_t, cublasMath_t,
// cublasLtMatmulDescAttributes_t, cublasLtMatmulAlgoConfigAttributes_t), library_types.h
// (cudaDataType_t). Their values are part of the libraries' ABI.
#pragma once

#include <cstdint>

namespace plumbline::interpose {

struct NcclUniqueId {
  char bytes[128];
};
constexpr int kNcclSuccess = 0;
constexpr int kNcclNamedOps = 5;  // ncclNumOps: larger numbers are made by programs
constexpr int kNcclNoColor = -1;  // NCCL_SPLIT_NOCOLOR
constexpr int kCublasSuccess = 0;
constexpr uint8_t kCudaF32 = 0, kCudaF64 = 1, kCudaF16 = 2;
constexpr uint8_t kCompute16F = 64, kCompute32F = 68, kCompute64F = 70;
constexpr int kLtDescComputeType = 0;             // CUBLASLT_MATMUL_DESC_COMPUTE_TYPE
constexpr int kLtDescFastAccum = 25;              // CUBLASLT_MATMUL_DESC_FAST_ACCUM
constexpr int kLtAlgoSplitK = 2;                  // CUBLASLT_ALGO_CONFIG_SPLITK_NUM
constexpr int kLtAlgoReduction = 3;               // CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME
constexpr uint32_t kLtReductionInOutputType = 4;  // CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE

}  // namespace plumbline::interpose
