// cuBLAS: which operands are multiplied and accumulated in which type. Calls of the `_64` names
// have the same words.
#include "agent/interpose/interpose.h"
#include "agent/interpose/numbers.h"
#include "agent/interpose/overrides.h"
#include "agent/interpose/values.h"

namespace plumbline::interpose {
namespace {

uint8_t FlagsOf(Word handle) {
  const uint32_t mode = ValueOf(handle);
  const uint32_t flags = mode == kNoValue ? 0 : mode & kCallMathMode;
  return static_cast<uint8_t>(flags | TF32Override());
}

void NoteProduct(CallFunction function, Word handle, Word a, Word b, Word d, Word compute) {
  Count({.function = function,
         .a = AsByte(a),
         .b = AsByte(b),
         .d = AsByte(d),
         .compute = AsByte(compute),
         .flags = FlagsOf(handle)});
}

}  // namespace

// The mode is set before the call. If the call fails, the handle is unusable anyway.
PLUMB_INTERPOSE(int, cublasSetMathMode, (Word handle, Word mode), (handle, mode),
                SetValue(handle, static_cast<uint32_t>(mode)))
PLUMB_INTERPOSE(int, cublasDestroy_v2, (Word handle), (handle), ForgetValue(handle))

#define PLUMB_GEMM_EX(name)                                                                   \
  PLUMB_INTERPOSE(int, name,                                                                  \
                  (Word handle, Word ta, Word tb, Word m, Word n, Word k, Word alpha, Word a, \
                   Word a_type, Word lda, Word b, Word b_type, Word ldb, Word beta, Word c,   \
                   Word c_type, Word ldc, Word compute, Word algorithm),                      \
                  (handle, ta, tb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c,   \
                   c_type, ldc, compute, algorithm),                                          \
                  NoteProduct(CallFunction::name, handle, a_type, b_type, c_type, compute))
PLUMB_GEMM_EX(cublasGemmEx)
PLUMB_GEMM_EX(cublasGemmEx_64)

#define PLUMB_GEMM_BATCHED_EX(name)                                                           \
  PLUMB_INTERPOSE(int, name,                                                                  \
                  (Word handle, Word ta, Word tb, Word m, Word n, Word k, Word alpha, Word a, \
                   Word a_type, Word lda, Word b, Word b_type, Word ldb, Word beta, Word c,   \
                   Word c_type, Word ldc, Word batch, Word compute, Word algorithm),          \
                  (handle, ta, tb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c,   \
                   c_type, ldc, batch, compute, algorithm),                                   \
                  NoteProduct(CallFunction::name, handle, a_type, b_type, c_type, compute))
PLUMB_GEMM_BATCHED_EX(cublasGemmBatchedEx)
PLUMB_GEMM_BATCHED_EX(cublasGemmBatchedEx_64)

#define PLUMB_GEMM_STRIDED_EX(name)                                                              \
  PLUMB_INTERPOSE(                                                                               \
      int, name,                                                                                 \
      (Word handle, Word ta, Word tb, Word m, Word n, Word k, Word alpha, Word a, Word a_type,   \
       Word lda, Word a_stride, Word b, Word b_type, Word ldb, Word b_stride, Word beta, Word c, \
       Word c_type, Word ldc, Word c_stride, Word batch, Word compute, Word algorithm),          \
      (handle, ta, tb, m, n, k, alpha, a, a_type, lda, a_stride, b, b_type, ldb, b_stride, beta, \
       c, c_type, ldc, c_stride, batch, compute, algorithm),                                     \
      NoteProduct(CallFunction::name, handle, a_type, b_type, c_type, compute))
PLUMB_GEMM_STRIDED_EX(cublasGemmStridedBatchedEx)
PLUMB_GEMM_STRIDED_EX(cublasGemmStridedBatchedEx_64)

#define PLUMB_SGEMM_EX(name)                                                                   \
  PLUMB_INTERPOSE(                                                                             \
      int, name,                                                                               \
      (Word handle, Word ta, Word tb, Word m, Word n, Word k, Word alpha, Word a, Word a_type, \
       Word lda, Word b, Word b_type, Word ldb, Word beta, Word c, Word c_type, Word ldc),     \
      (handle, ta, tb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc),  \
      NoteProduct(CallFunction::name, handle, a_type, b_type, c_type, kCompute32F))
PLUMB_SGEMM_EX(cublasSgemmEx)
PLUMB_SGEMM_EX(cublasSgemmEx_64)

#define PLUMB_GEMM(name, type, compute)                                                       \
  PLUMB_INTERPOSE(int, name,                                                                  \
                  (Word handle, Word ta, Word tb, Word m, Word n, Word k, Word alpha, Word a, \
                   Word lda, Word b, Word ldb, Word beta, Word c, Word ldc),                  \
                  (handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc),             \
                  NoteProduct(CallFunction::name, handle, type, type, type, compute))
PLUMB_GEMM(cublasSgemm_v2, kCudaF32, kCompute32F)
PLUMB_GEMM(cublasSgemm_v2_64, kCudaF32, kCompute32F)
PLUMB_GEMM(cublasDgemm_v2, kCudaF64, kCompute64F)
PLUMB_GEMM(cublasDgemm_v2_64, kCudaF64, kCompute64F)
PLUMB_GEMM(cublasHgemm, kCudaF16, kCompute16F)
PLUMB_GEMM(cublasHgemm_64, kCudaF16, kCompute16F)

#define PLUMB_GEMM_BATCHED(name, type, compute)                                               \
  PLUMB_INTERPOSE(int, name,                                                                  \
                  (Word handle, Word ta, Word tb, Word m, Word n, Word k, Word alpha, Word a, \
                   Word lda, Word b, Word ldb, Word beta, Word c, Word ldc, Word batch),      \
                  (handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, batch),      \
                  NoteProduct(CallFunction::name, handle, type, type, type, compute))
PLUMB_GEMM_BATCHED(cublasSgemmBatched, kCudaF32, kCompute32F)
PLUMB_GEMM_BATCHED(cublasSgemmBatched_64, kCudaF32, kCompute32F)
PLUMB_GEMM_BATCHED(cublasDgemmBatched, kCudaF64, kCompute64F)
PLUMB_GEMM_BATCHED(cublasDgemmBatched_64, kCudaF64, kCompute64F)
PLUMB_GEMM_BATCHED(cublasHgemmBatched, kCudaF16, kCompute16F)
PLUMB_GEMM_BATCHED(cublasHgemmBatched_64, kCudaF16, kCompute16F)

#define PLUMB_GEMM_STRIDED(name, type, compute)                                                 \
  PLUMB_INTERPOSE(int, name,                                                                    \
                  (Word handle, Word ta, Word tb, Word m, Word n, Word k, Word alpha, Word a,   \
                   Word lda, Word a_stride, Word b, Word ldb, Word b_stride, Word beta, Word c, \
                   Word ldc, Word c_stride, Word batch),                                        \
                  (handle, ta, tb, m, n, k, alpha, a, lda, a_stride, b, ldb, b_stride, beta, c, \
                   ldc, c_stride, batch),                                                       \
                  NoteProduct(CallFunction::name, handle, type, type, type, compute))
PLUMB_GEMM_STRIDED(cublasSgemmStridedBatched, kCudaF32, kCompute32F)
PLUMB_GEMM_STRIDED(cublasSgemmStridedBatched_64, kCudaF32, kCompute32F)
PLUMB_GEMM_STRIDED(cublasDgemmStridedBatched, kCudaF64, kCompute64F)
PLUMB_GEMM_STRIDED(cublasDgemmStridedBatched_64, kCudaF64, kCompute64F)
PLUMB_GEMM_STRIDED(cublasHgemmStridedBatched, kCudaF16, kCompute16F)
PLUMB_GEMM_STRIDED(cublasHgemmStridedBatched_64, kCudaF16, kCompute16F)

}  // namespace plumbline::interpose
