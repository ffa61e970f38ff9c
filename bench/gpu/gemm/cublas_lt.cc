#include "bench/gpu/gemm/cublas_lt.h"

#include <dlfcn.h>

#include <vector>

#include "absl/strings/str_cat.h"

namespace plumbline::bench {
namespace {

// Finds functions, and records the first that is missing.
class Finder {
 public:
  explicit Finder(void* library) : library_(library) {}

  template <typename Function>
  void Find(const char* name, Function* function) {
    void* symbol = dlsym(library_, name);
    if (symbol == nullptr && missing_.empty()) missing_ = name;
    *function = reinterpret_cast<Function>(symbol);
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

std::string FindAll(void* library, CublasLt* lt) {
  Finder finder(library);
  finder.Find("cublasLtGetVersion", &lt->GetVersion);
  finder.Find("cublasLtGetStatusName", &lt->GetStatusName);
  finder.Find("cublasLtCreate", &lt->Create);
  finder.Find("cublasLtDestroy", &lt->Destroy);
  finder.Find("cublasLtMatmul", &lt->Matmul);
  finder.Find("cublasLtMatrixLayoutCreate", &lt->MatrixLayoutCreate);
  finder.Find("cublasLtMatrixLayoutDestroy", &lt->MatrixLayoutDestroy);
  finder.Find("cublasLtMatmulDescCreate", &lt->MatmulDescCreate);
  finder.Find("cublasLtMatmulDescDestroy", &lt->MatmulDescDestroy);
  finder.Find("cublasLtMatmulDescSetAttribute", &lt->MatmulDescSetAttribute);
  finder.Find("cublasLtMatmulPreferenceCreate", &lt->MatmulPreferenceCreate);
  finder.Find("cublasLtMatmulPreferenceDestroy", &lt->MatmulPreferenceDestroy);
  finder.Find("cublasLtMatmulPreferenceSetAttribute", &lt->MatmulPreferenceSetAttribute);
  finder.Find("cublasLtMatmulAlgoGetHeuristic", &lt->MatmulAlgoGetHeuristic);
  finder.Find("cublasLtMatmulAlgoGetIds", &lt->MatmulAlgoGetIds);
  finder.Find("cublasLtMatmulAlgoInit", &lt->MatmulAlgoInit);
  finder.Find("cublasLtMatmulAlgoCheck", &lt->MatmulAlgoCheck);
  finder.Find("cublasLtMatmulAlgoCapGetAttribute", &lt->MatmulAlgoCapGetAttribute);
  finder.Find("cublasLtMatmulAlgoConfigSetAttribute", &lt->MatmulAlgoConfigSetAttribute);
  finder.Find("cublasLtMatmulAlgoConfigGetAttribute", &lt->MatmulAlgoConfigGetAttribute);
  return finder.missing();
}

}  // namespace

// 13.1.0 is 130100.
std::string CublasLt::Version() const {
  const size_t version = GetVersion();
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::Status CublasLt::StatusOf(const char* function, cublasStatus_t status) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(function, ": ", GetStatusName(status));
  const bool refused = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                       status == CUBLAS_STATUS_INVALID_VALUE ||
                       status == CUBLAS_STATUS_ARCH_MISMATCH;
  return refused ? absl::UnimplementedError(text) : absl::InternalError(text);
}

absl::StatusOr<CublasLt> OpenCublasLt(const std::string& path) {
  std::vector<std::string> names = {"libcublasLt.so.13", "libcublasLt.so.12"};
  if (!path.empty()) names = {path};
  std::string errors;
  for (const std::string& name : names) {
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      absl::StrAppend(&errors, errors.empty() ? "" : "; ", dlerror());
      continue;
    }
    CublasLt lt;
    const std::string missing = FindAll(library, &lt);
    if (missing.empty()) return lt;
    return absl::NotFoundError(absl::StrCat(name, " has no ", missing));
  }
  return absl::NotFoundError(errors);
}

}  // namespace plumbline::bench
