// Opens cuBLAS at run time: the build does not need it. If it is missing at run time, the program
// reports that.
#pragma once

#include <cublas_v2.h>
#include <dlfcn.h>

#include <string>

namespace plumbline::gpu {

struct Blas {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  // cublasGemmEx, which is overloaded in C++.
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                         const void* alpha, const void* a, cudaDataType, int lda, const void* b,
                         cudaDataType, int ldb, const void* beta, void* c, cudaDataType, int ldc,
                         cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
  decltype(&cublasGetVersion_v2) version = nullptr;

  // Opens the library, which stays open. Returns "", or why it cannot be used.
  std::string Open() {
    void* library = nullptr;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12"}) {
      if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) return std::string("no cuBLAS: ") + dlerror();
    const bool found =
        Find(library, "cublasCreate_v2", &create) && Find(library, "cublasDestroy_v2", &destroy) &&
        Find(library, "cublasSetStream_v2", &set_stream) && Find(library, "cublasGemmEx", &gemm) &&
        Find(library, "cublasGetVersion_v2", &version);
    return found ? "" : std::string("no cuBLAS: ") + dlerror();
  }

 private:
  template <typename Function>
  static bool Find(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
  }
};

}  // namespace plumbline::gpu
