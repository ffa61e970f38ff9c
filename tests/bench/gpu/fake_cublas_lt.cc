#include "tests/bench/gpu/fake_cublas_lt.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace plumbline::bench {
namespace {

constexpr uint64_t kPlain = 1;  // algorithms
constexpr uint64_t kSplits = 2;

FakeCublasLt fake;

struct Layout {
  cudaDataType type;
  uint64_t rows;
  uint64_t columns;
};

const Layout& LayoutOf(cublasLtMatrixLayout_t layout) {
  return *reinterpret_cast<const Layout*>(layout);
}

bool AllZero(const float* line, uint64_t count) {
  return std::all_of(line, line + count, [](float x) { return x == 0; });
}

int LinesNotZero(const float* lines, uint64_t count, uint64_t inner) {
  int found = 0;
  for (uint64_t i = 0; i < count; ++i) found += AllZero(lines + i * inner, inner) ? 0 : 1;
  return found;
}

float Fold(const float* a, const float* b, uint64_t count) {
  float sum = a[0] * b[0];
  for (uint64_t k = 1; k < count; ++k) {
    const float product = a[k] * b[k];
    sum += product;
  }
  return sum;
}

float FoldInParts(const float* a, const float* b, uint64_t inner, uint64_t parts) {
  const uint64_t part = inner / parts;
  float sum = Fold(a, b, part);
  for (uint64_t i = 1; i < parts; ++i) sum += Fold(a + i * part, b + i * part, part);
  return sum;
}

cublasStatus_t LayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                            uint64_t columns, int64_t ld) {
  if (static_cast<uint64_t>(ld) != rows) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t LayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<Layout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                         cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t* results,
                         int* found) {
  fake.heuristic_rows = static_cast<int>(LayoutOf(d).rows);
  results[0] = {};
  results[0].algo.data[CUBLASLT_ALGO_CONFIG_ID] = kPlain;
  results[0].algo.data[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = 1;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Check(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                     const cublasLtMatmulAlgo_t*, cublasLtMatmulHeuristicResult_t* result) {
  fake.checked_rows = static_cast<int>(LayoutOf(d).rows);
  result->workspaceSize = 1024;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Capability(const cublasLtMatmulAlgo_t* algorithm,
                          cublasLtMatmulAlgoCapAttributes_t which, void* value, size_t,
                          size_t* written) {
  *written = 0;
  const bool splits = algorithm->data[CUBLASLT_ALGO_CONFIG_ID] == kSplits;
  const int32_t support = splits ? 1 : 0;
  const uint32_t schemes =
      CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (which == CUBLASLT_ALGO_CAP_SPLITK_SUPPORT) std::memcpy(value, &support, 4);
  if (which == CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK) std::memcpy(value, &schemes, 4);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Configure(cublasLtMatmulAlgo_t* algorithm,
                         cublasLtMatmulAlgoConfigAttributes_t which, const void* value,
                         size_t bytes) {
  algorithm->data[which] = 0;
  std::memcpy(&algorithm->data[which], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t Configured(const cublasLtMatmulAlgo_t* algorithm,
                          cublasLtMatmulAlgoConfigAttributes_t which, void* value, size_t bytes,
                          size_t* written) {
  if (which >= std::size(algorithm->data)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, &algorithm->data[which], bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Multiply(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void* a_memory,
                        cublasLtMatrixLayout_t a_layout, const void* b_memory,
                        cublasLtMatrixLayout_t b_layout, const void*, const void*,
                        cublasLtMatrixLayout_t, void* d_memory, cublasLtMatrixLayout_t,
                        const cublasLtMatmulAlgo_t* algorithm, void*, size_t, cudaStream_t) {
  if (fake.matmul != CUBLAS_STATUS_SUCCESS) return fake.matmul;
  const auto* a = static_cast<const float*>(a_memory);
  const auto* b = static_cast<const float*>(b_memory);
  auto* d = static_cast<float*>(d_memory);
  const uint64_t inner = LayoutOf(a_layout).rows;
  const uint64_t rows = LayoutOf(a_layout).columns, columns = LayoutOf(b_layout).columns;
  fake.rows_not_zero = LinesNotZero(a, rows, inner);
  fake.columns_not_zero = LinesNotZero(b, columns, inner);
  const uint64_t parts = algorithm->data[CUBLASLT_ALGO_CONFIG_SPLITK_NUM];
  constexpr uint64_t kCorner = 32;
  for (uint64_t row = rows - std::min(rows, kCorner); row < rows; ++row) {
    for (uint64_t column = 0; column < std::min(columns, kCorner); ++column) {
      d[column * rows + row] = FoldInParts(a + row * inner, b + column * inner, inner, parts);
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

FakeCublasLt& NewFakeCublasLt() {
  fake = {};
  return fake;
}

CublasLt FakeCublasLtTable() {
  CublasLt lt = {};
  lt.GetVersion = [] { return size_t{130102}; };
  lt.GetStatusName = [](cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "another";
  };
  lt.Create = [](cublasLtHandle_t*) { return CUBLAS_STATUS_SUCCESS; };
  lt.Destroy = [](cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; };
  lt.Matmul = Multiply;
  lt.MatrixLayoutCreate = LayoutCreate;
  lt.MatrixLayoutDestroy = LayoutDestroy;
  lt.MatmulDescCreate = [](cublasLtMatmulDesc_t*, cublasComputeType_t, cudaDataType_t) {
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.MatmulDescDestroy = [](cublasLtMatmulDesc_t) { return CUBLAS_STATUS_SUCCESS; };
  lt.MatmulDescSetAttribute = [](cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void*,
                                 size_t) { return CUBLAS_STATUS_SUCCESS; };
  lt.MatmulPreferenceCreate = [](cublasLtMatmulPreference_t*) { return CUBLAS_STATUS_SUCCESS; };
  lt.MatmulPreferenceDestroy = [](cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; };
  lt.MatmulPreferenceSetAttribute = [](cublasLtMatmulPreference_t,
                                       cublasLtMatmulPreferenceAttributes_t which,
                                       const void* value, size_t bytes) {
    if (which == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) {
      std::memcpy(&fake.a_alignment, value, bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.MatmulAlgoGetHeuristic = Heuristic;
  lt.MatmulAlgoGetIds = [](cublasLtHandle_t, cublasComputeType_t, cudaDataType_t, cudaDataType_t,
                           cudaDataType_t, cudaDataType_t, cudaDataType_t, int, int* ids,
                           int* found) {
    ids[0] = kPlain;
    ids[1] = kSplits;
    *found = 2;
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.MatmulAlgoInit = [](cublasLtHandle_t, cublasComputeType_t, cudaDataType_t, cudaDataType_t,
                         cudaDataType_t, cudaDataType_t, cudaDataType_t, int id,
                         cublasLtMatmulAlgo_t* algorithm) {
    *algorithm = {};
    algorithm->data[CUBLASLT_ALGO_CONFIG_ID] = static_cast<uint64_t>(id);
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.MatmulAlgoCheck = Check;
  lt.MatmulAlgoCapGetAttribute = Capability;
  lt.MatmulAlgoConfigSetAttribute = Configure;
  lt.MatmulAlgoConfigGetAttribute = Configured;
  return lt;
}

}  // namespace plumbline::bench

// The few functions of CUDA's runtime that are called, implemented in host memory, because the
// runtime is not linked.
extern "C" {

// New memory holds NaN, so that a read before the first write is visible.
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*memory, 0xff, bytes);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) { return cudaMalloc(memory, bytes); }
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t) {
  for (size_t i = 0; i < height; ++i) {
    std::memcpy(static_cast<char*>(to) + i * to_pitch,
                static_cast<const char*>(from) + i * from_pitch, width);
  }
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return plumbline::bench::fake.synchronize; }
cudaError_t cudaSetDeviceFlags(unsigned int) { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "the device is gone"; }
}
