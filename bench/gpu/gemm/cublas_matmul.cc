#include "bench/gpu/gemm/cublas_matmul.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "bench/gpu/gemm/cublas_plan.h"

namespace plumbline::bench {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kMostBatch = 128;

absl::Status StatusOf(const char* function, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(function, ": ", cudaGetErrorString(error)));
}

size_t LineBytes(const Product& p) {
  return static_cast<size_t>(p.shape.inner) * DTypeSize(p.input);
}
size_t RowBytes(const Product& p) {
  return static_cast<size_t>(std::max(p.shape.rows, kMostBatch)) * LineBytes(p);
}
size_t ColumnBytes(const Product& p) { return static_cast<size_t>(p.shape.columns) * LineBytes(p); }
size_t OutputBytes(const Product& p) {
  return static_cast<size_t>(std::max(p.shape.rows, kMostBatch)) *
         static_cast<size_t>(p.shape.columns) * DTypeSize(p.output);
}

// B follows A in memory, so that A's last rows and B's first columns are contiguous and need one
// copy. If A has fewer rows, it begins later.
struct Memory {
  std::byte* b = nullptr;
  std::byte* d = nullptr;
  void* workspace = nullptr;
  std::byte* factors = nullptr;  // pinned
  std::byte* corner = nullptr;   // pinned
  cudaStream_t stream = nullptr;
};

class CublasMatmul : public Matmul {
 public:
  CublasMatmul(const CublasLt& lt, cublasLtHandle_t handle, const Memory& memory,
               const Product& product)
      : lt_(lt), handle_(handle), memory_(memory), product_(product) {}
  ~CublasMatmul() override { cudaStreamSynchronize(memory_.stream); }

  absl::Status Open() {
    absl::Status status =
        StatusOf("cudaMemsetAsync",
                 cudaMemsetAsync(memory_.b - RowBytes(product_), 0,
                                 RowBytes(product_) + ColumnBytes(product_), memory_.stream));
    if (!status.ok()) return status;
    auto plan = PlanOf(lt_, handle_, product_, Limits(product_.shape.rows));
    if (!plan.ok()) return plan.status();
    plan_ = std::make_unique<CublasPlan>(*std::move(plan));
    algorithm_ = AlgorithmOf(lt_, *plan_);
    return absl::OkStatus();
  }

  const Algorithm& algorithm() const override { return algorithm_; }
  std::byte* factors() override { return memory_.factors; }

  absl::Status Compute(int lines, const std::byte** d) override {
    return Run(*plan_, product_.shape.rows, lines, d);
  }

  absl::Status ComputeBatch(int rows, const std::byte** d) override {
    auto& plan = batches_[rows];
    if (!plan) {
      Product product = product_;
      product.shape.rows = product.algorithm.rows = rows;
      product.algorithm.columns = product.shape.columns;
      auto made = PlanOf(lt_, handle_, product, Limits(rows));
      if (!made.ok()) {
        return absl::Status(made.status().code(),
                            absl::StrCat("rows ", rows, ": ", made.status().message()));
      }
      plan = std::make_unique<CublasPlan>(*std::move(made));
    }
    return Run(*plan, rows, 1, d);
  }

 private:
  CublasLimits Limits(int rows) const {
    CublasLimits limits{kWorkspaceBytes, 256};
    const size_t bytes = static_cast<size_t>(rows) * LineBytes(product_);
    while (bytes % limits.a_alignment != 0) limits.a_alignment /= 2;
    return limits;
  }

  absl::Status Run(const CublasPlan& plan, int rows, int lines, const std::byte** d) {
    if (absl::Status s = Upload(lines); !s.ok()) return s;
    const std::byte* a = memory_.b - static_cast<size_t>(rows) * LineBytes(product_);
    const cublasStatus_t status =
        lt_.Matmul(handle_, plan.operation.get(), plan.one, a, plan.a.get(), memory_.b,
                   plan.b.get(), plan.zero, memory_.d, plan.d.get(), memory_.d, plan.d.get(),
                   &plan.algorithm, memory_.workspace, kWorkspaceBytes, memory_.stream);
    if (status != CUBLAS_STATUS_SUCCESS) return Failed(status);
    return Download(rows, lines, d);
  }

  // If the device still works, the failure is one of this product.
  absl::Status Failed(cublasStatus_t status) const {
    if (absl::Status s = StatusOf("cudaStreamSynchronize", cudaStreamSynchronize(memory_.stream));
        !s.ok()) {
      return s;
    }
    return absl::UnimplementedError(lt_.StatusOf("cublasLtMatmul", status).message());
  }

  absl::Status Upload(int lines) {
    const size_t side = LineBytes(product_) * static_cast<size_t>(lines);
    if (lines < held_lines_) {
      const size_t held = LineBytes(product_) * static_cast<size_t>(held_lines_);
      absl::Status status = StatusOf(
          "cudaMemsetAsync", cudaMemsetAsync(memory_.b - held, 0, 2 * held, memory_.stream));
      if (!status.ok()) return status;
    }
    held_lines_ = lines;
    return StatusOf("cudaMemcpyAsync", cudaMemcpyAsync(memory_.b - side, memory_.factors, 2 * side,
                                                       cudaMemcpyHostToDevice, memory_.stream));
  }

  absl::Status Download(int rows, int lines, const std::byte** d) {
    const size_t width = DTypeSize(product_.output);
    const size_t part = width * static_cast<size_t>(lines);
    const std::byte* corner = memory_.d + static_cast<size_t>(rows - lines) * width;
    const cudaError_t error =
        lines == 1
            ? cudaMemcpyAsync(memory_.corner, corner, part, cudaMemcpyDeviceToHost, memory_.stream)
            : cudaMemcpy2DAsync(memory_.corner, part, corner, static_cast<size_t>(rows) * width,
                                part, static_cast<size_t>(lines), cudaMemcpyDeviceToHost,
                                memory_.stream);
    if (error != cudaSuccess) return StatusOf("cudaMemcpyAsync", error);
    *d = memory_.corner;
    return StatusOf("cudaStreamSynchronize", cudaStreamSynchronize(memory_.stream));
  }

  const CublasLt& lt_;
  cublasLtHandle_t handle_;
  const Memory& memory_;
  const Product product_;
  std::unique_ptr<CublasPlan> plan_;
  std::map<int, std::unique_ptr<CublasPlan>> batches_;  // by rows
  Algorithm algorithm_;
  int held_lines_ = 0;  // non-zero rows and columns on the device
};

class CublasMatmuls : public MatmulLibrary {
 public:
  explicit CublasMatmuls(const CublasLt& lt) : lt_(lt) {}
  ~CublasMatmuls() override {
    if (handle_ != nullptr) lt_.Destroy(handle_);
    if (memory_.stream != nullptr) cudaStreamDestroy(memory_.stream);
    cudaFreeHost(memory_.corner);
    cudaFreeHost(memory_.factors);
    cudaFree(memory_.workspace);
    cudaFree(memory_.d);
    cudaFree(a_);
  }

  absl::Status Start(const std::vector<Product>& products) {
    // A call takes microseconds, so spinning costs less than sleeping.
    if (auto s = StatusOf("cudaSetDeviceFlags", cudaSetDeviceFlags(cudaDeviceScheduleSpin));
        !s.ok()) {
      return s;
    }
    if (auto s = Allocate(products); !s.ok()) return s;
    return lt_.StatusOf("cublasLtCreate", lt_.Create(&handle_));
  }

  std::string name() const override { return absl::StrCat("cuBLASLt ", lt_.Version()); }

  absl::StatusOr<std::unique_ptr<Matmul>> Open(const Product& product) override {
    auto matmul = std::make_unique<CublasMatmul>(lt_, handle_, memory_, product);
    if (absl::Status s = matmul->Open(); !s.ok()) return s;
    return matmul;
  }

 private:
  absl::Status Allocate(const std::vector<Product>& products) {
    size_t a = 256, b = 256, d = 256, line = 1;
    for (const Product& p : products) {
      a = std::max(a, RowBytes(p));
      b = std::max(b, ColumnBytes(p));
      d = std::max(d, OutputBytes(p));
      line = std::max(line, LineBytes(p));
    }
    a = (a + 255) / 256 * 256;  // aligns B like A
    constexpr size_t kLines = Matmul::kMostLines;
    cudaError_t error = cudaMalloc(&a_, a + b);
    if (error == cudaSuccess) error = cudaMalloc(reinterpret_cast<void**>(&memory_.d), d);
    if (error == cudaSuccess) error = cudaMalloc(&memory_.workspace, kWorkspaceBytes);
    if (error == cudaSuccess) {
      error = cudaMallocHost(reinterpret_cast<void**>(&memory_.factors), 2 * kLines * line);
    }
    if (error == cudaSuccess) {
      error = cudaMallocHost(reinterpret_cast<void**>(&memory_.corner), kLines * kLines * 8);
    }
    if (error != cudaSuccess) return StatusOf("cudaMalloc", error);
    memory_.b = static_cast<std::byte*>(a_) + a;
    return StatusOf("cudaStreamCreateWithFlags",
                    cudaStreamCreateWithFlags(&memory_.stream, cudaStreamNonBlocking));
  }

  const CublasLt lt_;
  cublasLtHandle_t handle_ = nullptr;
  void* a_ = nullptr;
  Memory memory_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MatmulLibrary>> OpenCublasMatmuls(
    const CublasLt& lt, const std::vector<Product>& products) {
  auto matmuls = std::make_unique<CublasMatmuls>(lt);
  if (absl::Status s = matmuls->Start(products); !s.ok()) return s;
  return matmuls;
}

}  // namespace plumbline::bench
