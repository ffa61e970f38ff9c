// What the tests on a GPU share: whether there is one, and copies of host tensors in its memory.
// Without a CUDA build such a test says so and is skipped.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>

#if defined(PLUMBLINE_HAVE_CUDA)
#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "base/tensor_view.h"
#include "tests/kernels/routing_case.h"
#endif

namespace plumbline {

// Empty where a device can run the tests, else why not.
inline std::string WhyNoGpu() {
#if defined(PLUMBLINE_HAVE_CUDA)
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return "";
  return std::string("no CUDA GPU: ") + cudaGetErrorString(error);
#else
  return "no CUDA GPU can be used: built without the CUDA toolkit";
#endif
}

// The main function of a test that needs a GPU, for which `prepare` is called first: 77, as CTest
// knows it, where there is none.
inline int RunOnGpu(
    int argc, char** argv, const std::function<void()>& prepare = [] {}) {
  testing::InitGoogleTest(&argc, argv);
  const std::string why_not = WhyNoGpu();
  if (!why_not.empty()) {
    std::printf("skipped: %s\n", why_not.c_str());
    return 77;
  }
  prepare();
  return RUN_ALL_TESTS();
}

#if defined(PLUMBLINE_HAVE_CUDA)

// Copies of host tensors on device 0, with the same strides, freed with the object.
class DeviceCopies {
 public:
  DeviceCopies() = default;
  ~DeviceCopies() {
    for (void* p : memory_) cudaFree(p);
  }
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  // `block`: the bytes that `view` lies in, copied whole.
  template <typename Block>
  TensorView Copy(TensorView view, const Block& block) {
    void* p = nullptr;
    EXPECT_EQ(cudaMalloc(&p, block.size() + 1), cudaSuccess);
    memory_.push_back(p);
    EXPECT_EQ(cudaMemcpy(p, block.data(), block.size(), cudaMemcpyHostToDevice), cudaSuccess);
    const auto* begin = reinterpret_cast<const std::byte*>(block.data());
    view.data = static_cast<std::byte*>(p) + (static_cast<const std::byte*>(view.data) - begin);
    view.device = 0;
    return view;
  }

  RoutingInput Copy(const RoutingCase& c) {
    RoutingInput in = c.in;
    for (TensorView* view :
         {&in.scores, &in.expert_bias, &in.topk_indices, &in.keep_mask, &in.routing_map, &in.probs,
          &in.sequence_id, &in.position, &in.padding_mask, &in.pool_id}) {
      if (!view->present()) continue;
      const auto* data = static_cast<const unsigned char*>(view->data);
      for (const auto& block : c.storage) {
        if (data < block.data() || data >= block.data() + block.size()) continue;
        *view = Copy(*view, block);
        break;
      }
      EXPECT_EQ(view->device, 0);
    }
    return in;
  }

 private:
  std::vector<void*> memory_;
};

#endif

}  // namespace plumbline
