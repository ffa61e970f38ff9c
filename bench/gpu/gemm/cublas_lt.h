// Opens cuBLASLt at run time: the program builds and starts without a GPU.
#pragma once

#include <cublasLt.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline::bench {

// The functions that gpu_gemm calls, by their names in cublasLt.h without the prefix. The library
// stays open until the process ends.
struct CublasLt {
  decltype(&cublasLtGetVersion) GetVersion;
  decltype(&cublasLtGetStatusName) GetStatusName;
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtDestroy) Destroy;
  decltype(&cublasLtMatmul) Matmul;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
  decltype(&cublasLtMatmulAlgoGetIds) MatmulAlgoGetIds;
  decltype(&cublasLtMatmulAlgoInit) MatmulAlgoInit;
  decltype(&cublasLtMatmulAlgoCheck) MatmulAlgoCheck;
  decltype(&cublasLtMatmulAlgoCapGetAttribute) MatmulAlgoCapGetAttribute;
  decltype(&cublasLtMatmulAlgoConfigSetAttribute) MatmulAlgoConfigSetAttribute;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) MatmulAlgoConfigGetAttribute;

  std::string Version() const;  // "13.1.0"
  // Returns Unimplemented (a refusal) if the library does not support the request, Internal if it
  // or the device failed.
  absl::Status StatusOf(const char* function, cublasStatus_t status) const;
};

// `path` is a file; if empty, the loader searches libcublasLt.so.13, then .12. NotFound has the
// message of dlopen, or the function that the library lacks.
absl::StatusOr<CublasLt> OpenCublasLt(const std::string& path);

}  // namespace plumbline::bench
