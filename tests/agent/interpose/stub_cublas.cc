// A cuBLAS for host memory: column-major products without transposition, in the arithmetic that the
// call requests.
#include <cstdlib>
#include <cstring>

#include "vendor.h"

namespace {

struct Handle {
  int mode;
};
struct Descriptor {
  int compute;
  bool fast;
};
struct Layout {
  int type;
  int rows, columns, ld;
};
struct Algorithm {
  int parts;
  int scheme;
};

float Cut(float x, bool tf32) {
  if (!tf32) return x;
  uint32_t bits;
  memcpy(&bits, &x, 4);
  bits &= 0xffffe000;
  memcpy(&x, &bits, 4);
  return x;
}

float Get(const void* data, int type, size_t i) {
  if (type == 0) return static_cast<const float*>(data)[i];
  return FromHalf(static_cast<const uint16_t*>(data)[i]);
}

void Put(void* data, int type, size_t i, float value) {
  if (type == 0) static_cast<float*>(data)[i] = value;
  if (type != 0) static_cast<uint16_t*>(data)[i] = ToHalf(value);
}

struct Product {
  const void* a;
  int a_type, lda;
  const void* b;
  int b_type, ldb;
  void* c;
  int c_type, ldc;
};

void Multiply(const Product& p, int m, int n, int k, bool half, bool tf32, int parts) {
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = 0, part = 0;
      for (int l = 0; l < k; ++l) {
        part += Cut(Get(p.a, p.a_type, static_cast<size_t>(i + l * p.lda)), tf32) *
                Cut(Get(p.b, p.b_type, static_cast<size_t>(l + j * p.ldb)), tf32);
        if (half) part = FromHalf(ToHalf(part));
        if (parts > 1 && (l + 1) % ((k + parts - 1) / parts) == 0) {
          sum += FromHalf(ToHalf(part));
          part = 0;
        }
      }
      Put(p.c, p.c_type, static_cast<size_t>(i + j * p.ldc), sum + part);
    }
  }
}

}  // namespace

extern "C" {

int cublasCreate_v2(void** handle) {
  *handle = new Handle{0};
  return 0;
}
int cublasDestroy_v2(void* handle) {
  delete static_cast<Handle*>(handle);
  return 0;
}
int cublasSetMathMode(void* handle, int mode) {
  static_cast<Handle*>(handle)->mode = mode;
  return 0;
}

int cublasSgemm_v2(void* handle, int, int, int m, int n, int k, const float*, const float* a,
                   int lda, const float* b, int ldb, const float*, float* c, int ldc) {
  const bool tf32 = (static_cast<Handle*>(handle)->mode & 15) == 3;
  Multiply({a, 0, lda, b, 0, ldb, c, 0, ldc}, m, n, k, false, tf32, 1);
  return 0;
}

int cublasGemmEx(void*, int, int, int m, int n, int k, const void*, const void* a, int a_type,
                 int lda, const void* b, int b_type, int ldb, const void*, void* c, int c_type,
                 int ldc, int compute, int) {
  Multiply({a, a_type, lda, b, b_type, ldb, c, c_type, ldc}, m, n, k, compute == 64, false, 1);
  return 0;
}

int cublasLtMatmulDescCreate(void** created, int compute, int) {
  *created = new Descriptor{compute, false};
  return 0;
}
int cublasLtMatmulDescSetAttribute(void* descriptor, int attribute, const void* buffer, size_t) {
  if (attribute == 25)
    static_cast<Descriptor*>(descriptor)->fast = *static_cast<const char*>(buffer) != 0;
  return 0;
}
int cublasLtMatmulDescDestroy(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return 0;
}
int cublasLtMatrixLayoutCreate(void** created, int type, uint64_t rows, uint64_t columns,
                               int64_t ld) {
  *created =
      new Layout{type, static_cast<int>(rows), static_cast<int>(columns), static_cast<int>(ld)};
  return 0;
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Layout*>(layout);
  return 0;
}
int cublasLtMatmulAlgoConfigSetAttribute(void* algorithm, int attribute, const void* buffer,
                                         size_t) {
  int value;
  memcpy(&value, buffer, sizeof(value));
  auto* chosen = static_cast<Algorithm*>(algorithm);
  if (attribute == 2) chosen->parts = value;
  if (attribute == 3) chosen->scheme = value;
  return 0;
}

int cublasLtMatmul(void*, void* descriptor, const void*, const void* a, void* a_layout,
                   const void* b, void* b_layout, const void*, const void*, void*, void* d,
                   void* d_layout, const void* algorithm, void*, size_t, void*) {
  const auto& la = *static_cast<Layout*>(a_layout);
  const auto& lb = *static_cast<Layout*>(b_layout);
  const auto& ld = *static_cast<Layout*>(d_layout);
  const auto* chosen = static_cast<const Algorithm*>(algorithm);
  const int parts = chosen != nullptr && chosen->scheme == 4 ? chosen->parts : 1;
  const bool half = static_cast<Descriptor*>(descriptor)->compute == 64;
  Multiply({a, la.type, la.ld, b, lb.type, lb.ld, d, ld.type, ld.ld}, la.rows, lb.columns,
           la.columns, half, false, parts);
  return 0;
}

}  // extern "C"
