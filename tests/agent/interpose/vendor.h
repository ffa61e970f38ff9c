// The prototypes of NCCL, cuBLAS, cuBLASLt and BLAS that the test programs use, with the types of
// the vendors' headers (nccl.h, cublas_api.h, cublasLt.h), so that they build on machines without
// them.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct ncclComm;
using ncclComm_t = ncclComm*;
struct ncclUniqueId {
  char internal[128];
};
int ncclGetUniqueId(ncclUniqueId* id);
int ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
int ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* created, void* config);
int ncclCommDestroy(ncclComm_t comm);
int ncclAllReduce(const void* send, void* receive, size_t count, int datatype, int op,
                  ncclComm_t comm, void* stream);
int ncclBroadcast(const void* send, void* receive, size_t count, int datatype, int root,
                  ncclComm_t comm, void* stream);

int cublasCreate_v2(void** handle);
int cublasDestroy_v2(void* handle);
int cublasSetMathMode(void* handle, int mode);
int cublasSgemm_v2(void* handle, int ta, int tb, int m, int n, int k, const float* alpha,
                   const float* a, int lda, const float* b, int ldb, const float* beta, float* c,
                   int ldc);
int cublasGemmEx(void* handle, int ta, int tb, int m, int n, int k, const void* alpha,
                 const void* a, int a_type, int lda, const void* b, int b_type, int ldb,
                 const void* beta, void* c, int c_type, int ldc, int compute, int algorithm);

int cublasLtMatmulDescCreate(void** created, int compute, int scale);
int cublasLtMatmulDescSetAttribute(void* descriptor, int attribute, const void* buffer,
                                   size_t size);
int cublasLtMatmulDescDestroy(void* descriptor);
int cublasLtMatrixLayoutCreate(void** created, int type, uint64_t rows, uint64_t columns,
                               int64_t ld);
int cublasLtMatrixLayoutDestroy(void* layout);
int cublasLtMatmulAlgoConfigSetAttribute(void* algorithm, int attribute, const void* buffer,
                                         size_t size);
int cublasLtMatmul(void* handle, void* descriptor, const void* alpha, const void* a, void* a_layout,
                   const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                   void* d, void* d_layout, const void* algorithm, void* workspace, size_t size,
                   void* stream);

void sgemm_(const char* ta, const char* tb, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
            const float* beta, float* c, const int* ldc);
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a,
                 int lda, const float* b, int ldb, float beta, float* c, int ldc);

}  // extern "C"

// float to the nearest half and back, ties to even.
inline uint16_t ToHalf(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const int exponent = static_cast<int>((bits >> 23) & 0xff) - 112;
  const uint32_t fraction = (bits & 0x7fffff) | 0x800000;
  if (exponent >= 31) return static_cast<uint16_t>(sign | 0x7c00);
  const int shift = exponent > 0 ? 13 : 14 - exponent;
  if (shift > 25) return static_cast<uint16_t>(sign);
  uint32_t kept = fraction >> shift;
  const uint32_t rest = fraction & ((1u << shift) - 1), middle = 1u << (shift - 1);
  if (rest > middle || (rest == middle && (kept & 1) != 0)) ++kept;
  const uint32_t base = exponent > 0 ? static_cast<uint32_t>(exponent - 1) << 10 : 0;
  return static_cast<uint16_t>(sign | (base + kept));
}

inline float FromHalf(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const float fraction = static_cast<float>(half & 1023);
  const float size = exponent == 0 ? fraction * 0x1p-24f
                                   : (1024 + fraction) * __builtin_ldexpf(1.0f, exponent - 25);
  return (half & 0x8000) != 0 ? -size : size;
}
