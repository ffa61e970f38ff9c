// Helpers of the GPU tests: detection of a GPU, and copies of host tensors in its memory. Without a
// CUDA build such a test prints that and is skipped.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "tests/support/gpu.h"

#if defined(PLUMBLINE_HAVE_CUDA)
#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "base/tensor_view.h"
#include "tests/kernels/routing/case.h"
#endif

namespace plumbline {

// The main function of a test that needs a GPU. Calls `prepare` first. If there is no GPU, returns
// kSkipped.
inline int RunOnGpu(
    int argc, char** argv, const std::function<void()>& prepare = [] {}) {
  testing::InitGoogleTest(&argc, argv);
  const std::string why_not = test::WhyNoGpu();
  if (!why_not.empty()) {
    std::printf("skipped: %s\n", why_not.c_str());
    return test::kSkipped;
  }
  prepare();
  return RUN_ALL_TESTS();
}

// Returns the number of `cases` for a loop: PLUMB_SHORT is set under tools that slow a kernel a
// hundredfold.
inline uint32_t Cases(uint32_t cases) {
  return std::getenv("PLUMB_SHORT") != nullptr ? (cases + 9) / 10 : cases;
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

  // `block`: the memory block of `view`, copied whole.
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
