// The training step of this benchmark: the matrix products of one transformer block with a router,
// forward and backward, in bf16 by cuBLAS, a top-k and an update of the weights. Attention is left
// out: the products dominate a step and are what is observed.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <memory>

#include "base/tensor_view.h"
#include "bench/gpu/blas.h"
#include "bench/gpu/device_memory.h"

namespace plumbline::gpu {

struct BlockShape {
  int tokens = 8192;
  int width = 4096;
  int hidden = 14336;
  int experts = 64;
  int top_k = 8;
};

class StepBlock {
 public:
  // y [tokens, columns] = x [tokens, inner] w [inner, columns]
  struct Layer {
    const char* name;
    int inner, columns;
    DeviceMemory x, w, y, grad_y, grad_x, grad_w, master;
    Layer(const char* name, int tokens, int inner, int columns, DType out);
    // The tensors as a trainer would pass them.
    TensorView X(int tokens) const;
    TensorView W() const;
    TensorView Y(int tokens) const;
    TensorView GradW() const;
    DType out;
  };
  static constexpr int kLayers = 5;  // qkv, proj, up, down, router

  // `blas` must be open; both must outlive the block. Ends the program if the GPU lacks memory.
  StepBlock(const BlockShape& shape, const Blas& blas, cudaStream_t stream);
  ~StepBlock();
  StepBlock(const StepBlock&) = delete;
  StepBlock& operator=(const StepBlock&) = delete;

  void Forward();        // up to the choices
  void Backward();       // gradients, then the weights
  double flops() const;  // of the products of one step

  const Layer& layer(int i) const { return *layers_[static_cast<size_t>(i)]; }
  TensorView RouterScores() const;  // f32 [tokens, experts]
  TensorView Choices() const;       // i64 [tokens, top_k]
  const BlockShape& shape() const { return shape_; }

 private:
  void Multiply(bool transpose_a, bool transpose_b, int m, int n, int k, const void* a,
                const void* b, void* c, DType out);

  const BlockShape shape_;
  const Blas& blas_;
  cudaStream_t stream_;
  cublasHandle_t handle_ = nullptr;
  std::array<std::unique_ptr<Layer>, kLayers> layers_;
  DeviceMemory choices_;
};

}  // namespace plumbline::gpu
