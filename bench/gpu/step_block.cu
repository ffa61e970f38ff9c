#include <cuda_bf16.h>

#include <cmath>

#include "bench/gpu/step_block.h"

namespace plumbline::gpu {
namespace {

constexpr int kRouter = StepBlock::kLayers - 1;

size_t Bytes(int64_t rows, int64_t columns, DType t) {
  return static_cast<size_t>(rows * columns) * DTypeSize(t);
}

TensorView OnDevice(const DeviceMemory& memory, DType t, int64_t rows, int64_t columns) {
  TensorView view = TensorView::Dense(memory.data(), t, rows, columns);
  view.device = 0;
  return view;
}

// Selects the best of the remaining experts k times, with one thread per token. Its speed is not
// part of the measurement.
__global__ void TopKKernel(const float* scores, int tokens, int experts, int k, int64_t* out) {
  const int token = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (token >= tokens) return;
  const float* row = scores + static_cast<int64_t>(token) * experts;
  uint64_t taken = 0;
  for (int choice = 0; choice < k; ++choice) {
    int best = 0;
    float most = -INFINITY;
    for (int e = 0; e < experts; ++e) {
      if ((taken >> e & 1) == 0 && row[e] > most) {
        most = row[e];
        best = e;
      }
    }
    taken |= uint64_t{1} << best;
    out[static_cast<int64_t>(token) * k + choice] = best;
  }
}

__global__ void UpdateKernel(float* master, __nv_bfloat16* w, const __nv_bfloat16* grad, int64_t n,
                             float rate) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += step) {
    master[i] -= rate * __bfloat162float(grad[i]);
    w[i] = __float2bfloat16(master[i]);
  }
}

}  // namespace

StepBlock::Layer::Layer(const char* layer, int tokens, int k, int n, DType output)
    : name(layer),
      inner(k),
      columns(n),
      x(Bytes(tokens, k, DType::kBF16)),
      w(Bytes(k, n, DType::kBF16)),
      y(Bytes(tokens, n, output)),
      grad_y(Bytes(tokens, n, DType::kBF16)),
      grad_x(Bytes(tokens, k, DType::kBF16)),
      grad_w(Bytes(k, n, DType::kBF16)),
      master(Bytes(k, n, DType::kF32)),
      out(output) {
  const float deviation = 1 / std::sqrt(static_cast<float>(k));
  FillNormal(x.data(), DType::kBF16, static_cast<int64_t>(tokens) * k, 1, 1);
  FillNormal(w.data(), DType::kBF16, static_cast<int64_t>(k) * n, deviation, 2);
  FillNormal(master.data(), DType::kF32, static_cast<int64_t>(k) * n, deviation, 2);
  FillNormal(grad_y.data(), DType::kBF16, static_cast<int64_t>(tokens) * n, 1e-3f, 3);
}

TensorView StepBlock::Layer::X(int tokens) const {
  return OnDevice(x, DType::kBF16, tokens, inner);
}
TensorView StepBlock::Layer::W() const { return OnDevice(w, DType::kBF16, inner, columns); }
TensorView StepBlock::Layer::Y(int tokens) const { return OnDevice(y, out, tokens, columns); }
TensorView StepBlock::Layer::GradW() const {
  return OnDevice(grad_w, DType::kBF16, inner, columns);
}

StepBlock::StepBlock(const BlockShape& shape, const Blas& blas, cudaStream_t stream)
    : shape_(shape),
      blas_(blas),
      stream_(stream),
      choices_(static_cast<size_t>(shape.tokens) * static_cast<size_t>(shape.top_k) * 8) {
  if (blas_.create(&handle_) != CUBLAS_STATUS_SUCCESS ||
      blas_.set_stream(handle_, stream) != CUBLAS_STATUS_SUCCESS) {
    std::fprintf(stderr, "failed: cuBLAS cannot be started\n");
    std::exit(1);
  }
  const auto add = [&](int i, const char* name, int inner, int columns, DType out) {
    layers_[static_cast<size_t>(i)] =
        std::make_unique<Layer>(name, shape.tokens, inner, columns, out);
  };
  add(0, "qkv", shape.width, 3 * shape.width, DType::kBF16);
  add(1, "proj", shape.width, shape.width, DType::kBF16);
  add(2, "up", shape.width, shape.hidden, DType::kBF16);
  add(3, "down", shape.hidden, shape.width, DType::kBF16);
  add(kRouter, "router", shape.width, shape.experts, DType::kF32);
}

StepBlock::~StepBlock() {
  if (handle_ != nullptr) blas_.destroy(handle_);
}

// Computes row-major C [m, n] = op(A) op(B); cuBLAS does the transposes.
void StepBlock::Multiply(bool transpose_a, bool transpose_b, int m, int n, int k, const void* a,
                         const void* b, void* c, DType out) {
  const float one = 1, zero = 0;
  const auto op = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const cublasStatus_t status = blas_.gemm(
      handle_, op(transpose_b), op(transpose_a), n, m, k, &one, b, CUDA_R_16BF, transpose_b ? k : n,
      a, CUDA_R_16BF, transpose_a ? m : k, &zero, c, out == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF,
      n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "failed: cublasGemmEx: status %d\n", static_cast<int>(status));
  std::exit(1);
}

void StepBlock::Forward() {
  for (const auto& l : layers_) {
    Multiply(false, false, shape_.tokens, l->columns, l->inner, l->x.data(), l->w.data(),
             l->y.data(), l->out);
  }
  constexpr int kThreads = 128;
  TopKKernel<<<(shape_.tokens + kThreads - 1) / kThreads, kThreads, 0, stream_>>>(
      static_cast<const float*>(layers_[kRouter]->y.data()), shape_.tokens, shape_.experts,
      shape_.top_k, static_cast<int64_t*>(choices_.data()));
  Must(cudaGetLastError(), "top-k");
}

void StepBlock::Backward() {
  for (const auto& l : layers_) {
    Multiply(false, true, shape_.tokens, l->inner, l->columns, l->grad_y.data(), l->w.data(),
             l->grad_x.data(), DType::kBF16);
    Multiply(true, false, l->inner, l->columns, shape_.tokens, l->x.data(), l->grad_y.data(),
             l->grad_w.data(), DType::kBF16);
  }
  for (const auto& l : layers_) {
    UpdateKernel<<<8 * Processors(), 256, 0, stream_>>>(
        static_cast<float*>(l->master.data()), static_cast<__nv_bfloat16*>(l->w.data()),
        static_cast<const __nv_bfloat16*>(l->grad_w.data()),
        static_cast<int64_t>(l->inner) * l->columns, 1e-4f);
  }
  Must(cudaGetLastError(), "update");
}

double StepBlock::flops() const {
  double sum = 0;
  for (const auto& l : layers_) {
    sum += 3 * 2.0 * shape_.tokens * l->inner * l->columns;
  }
  return sum;
}

TensorView StepBlock::RouterScores() const {
  return OnDevice(layers_[kRouter]->y, DType::kF32, shape_.tokens, shape_.experts);
}
TensorView StepBlock::Choices() const {
  return OnDevice(choices_, DType::kI64, shape_.tokens, shape_.top_k);
}

}  // namespace plumbline::gpu
