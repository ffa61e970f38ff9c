// A BLAS whose products are WEIGHT times the product, so that a caller sees which library it has.
// cblas_sgemm calls sgemm_ by its exported name, as a C interface over a Fortran library does.
#include "vendor.h"

extern "C" {

void sgemm_(const char*, const char*, const int* m, const int* n, const int* k, const float* alpha,
            const float* a, const int* lda, const float* b, const int* ldb, const float* beta,
            float* c, const int* ldc) {
  for (int i = 0; i < *m; ++i) {
    for (int j = 0; j < *n; ++j) {
      float sum = 0;
      for (int l = 0; l < *k; ++l) sum += a[i + l * *lda] * b[l + j * *ldb];
      float& at = c[i + j * *ldc];
      at = WEIGHT * *alpha * sum + (*beta == 0 ? 0 : *beta * at);
    }
  }
}

void cblas_sgemm(int, int, int, int m, int n, int k, float alpha, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc) {
  sgemm_("N", "N", &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc);
}

}  // extern "C"
