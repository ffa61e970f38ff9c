// Calls of the vendors' own libraries on a machine without a GPU: descriptors work, products and
// sums return errors. The declarations are those of vendor.h.
#include <cstdio>

#include "vendor.h"

int main() {
  const float one = 1;
  float data[64] = {};
  void *descriptor = nullptr, *layout = nullptr;
  int status = cublasLtMatmulDescCreate(&descriptor, 68, 0);
  status |= cublasLtMatrixLayoutCreate(&layout, 28, 16, 16, 16);
  const signed char fast = 1;
  status |= cublasLtMatmulDescSetAttribute(descriptor, 25, &fast, sizeof(fast));
  printf("descriptor %d\n", status);
  void* none = nullptr;
  printf("product %d\n", cublasLtMatmul(none, descriptor, &one, data, layout, data, layout, &one,
                                        data, layout, data, layout, nullptr, nullptr, 0, nullptr));
  printf("gemm %d\n",
         cublasGemmEx(none, 0, 0, 8, 8, 8, &one, data, 2, 8, data, 2, 8, &one, data, 2, 8, 64, 0));
  printf("sum %d\n", ncclAllReduce(data, data, 8, 7, 0, nullptr, nullptr));
  cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(descriptor);
}
