// The device kernel against the host twin: same integers, same bits of the means. Needs a GPU.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#if defined(PLUMBLINE_HAVE_CUDA)
#include <cuda_runtime.h>

#include "kernels/routing_device.h"
#endif
#include "tests/kernels/routing_case.h"

namespace plumbline {
namespace {

#if defined(PLUMBLINE_HAVE_CUDA)

// Device copies of a case's tensors, with the same strides.
class DeviceCase {
 public:
  explicit DeviceCase(const RoutingCase& c) : in_(c.in) {
    TensorView* views[] = {&in_.scores,       &in_.expert_bias, &in_.topk_indices, &in_.keep_mask,
                           &in_.routing_map,  &in_.probs,       &in_.sequence_id,  &in_.position,
                           &in_.padding_mask, &in_.pool_id};
    for (TensorView* v : views) {
      if (v->present()) Move(c, v);
    }
  }
  ~DeviceCase() {
    for (void* p : memory_) cudaFree(p);
  }
  const RoutingInput& in() const { return in_; }

 private:
  void Move(const RoutingCase& c, TensorView* v) {
    const auto* data = static_cast<const unsigned char*>(v->data);
    for (const auto& block : c.storage) {
      if (data < block.data() || data >= block.data() + block.size()) continue;
      void* p = nullptr;
      ASSERT_EQ(cudaMalloc(&p, block.size()), cudaSuccess);
      memory_.push_back(p);
      ASSERT_EQ(cudaMemcpy(p, block.data(), block.size(), cudaMemcpyHostToDevice), cudaSuccess);
      v->data = static_cast<unsigned char*>(p) + (data - block.data());
      v->device = 0;
    }
    ASSERT_EQ(v->device, 0);
  }

  RoutingInput in_;
  std::vector<void*> memory_;
};

constexpr int kProcessors = 132;  // sets how many blocks are launched, and no bit of the result

bool SameBits(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

TEST(RoutingGpu, KernelEqualsTheHostTwinBitForBit) {
  RoutingRaw* raw = nullptr;
  ASSERT_EQ(cudaMallocHost(&raw, sizeof(RoutingRaw)), cudaSuccess);
  void* workspace = nullptr;
  const size_t bytes = RoutingWorkspaceBytes(1 << 17, kMaxExperts);
  ASSERT_EQ(cudaMalloc(&workspace, bytes), cudaSuccess);
  ASSERT_EQ(LoadRoutingKernels(), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  for (uint32_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    CaseOptions options;
    options.aligned = true;
    options.max_tokens = seed % 50 == 0 ? 100000 : 900;
    const RoutingCase c = CaseMaker(seed, options).Make();
    RoutingStats host;
    ASSERT_TRUE(SummariseRouting(c.in, &host).ok());
    const DeviceCase device_case(c);
    RoutingPlan plan;
    ASSERT_TRUE(PlanRouting(device_case.in(), &plan).ok());
    ASSERT_EQ(LaunchRouting(plan, kProcessors, workspace, raw, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    RoutingStats device;
    ASSERT_TRUE(FinishRouting(plan, *raw, &device).ok());
    ASSERT_EQ(device.padding, host.padding);
    ASSERT_EQ(device.tied, host.tied);
    ASSERT_EQ(device.non_finite, host.non_finite);
    ASSERT_EQ(device.unexplained, host.unexplained);
    ASSERT_EQ(device.choices, host.choices);
    ASSERT_EQ(device.dropped, host.dropped);
    ASSERT_EQ(device.load, host.load);
    ASSERT_EQ(device.refused, host.refused);
    ASSERT_EQ(device.drop_histogram, host.drop_histogram);
    ASSERT_EQ(device.offered_histogram, host.offered_histogram);
    ASSERT_EQ(device.pools.measured, host.pools.measured);
    ASSERT_EQ(device.pools.pools, host.pools.pools);
    ASSERT_EQ(device.pools.refusing_cells, host.pools.refusing_cells);
    ASSERT_EQ(device.pools.separable_cells, host.pools.separable_cells);
    ASSERT_EQ(device.pools.most_held, host.pools.most_held);
    ASSERT_EQ(device.pools.least_held_refusing, host.pools.least_held_refusing);
    ASSERT_EQ(device.pools.most_held_refusing, host.pools.most_held_refusing);
    ASSERT_EQ(device.pools.inverted_cells, host.pools.inverted_cells);
    ASSERT_EQ(device.pools.refused_row, host.pools.refused_row);
    ASSERT_EQ(device.pools.admitted_row, host.pools.admitted_row);
    ASSERT_EQ(device.pools.expert, host.pools.expert);
    ASSERT_TRUE(SameBits(device.entropy_mean, host.entropy_mean));
    ASSERT_TRUE(SameBits(device.margin_mean, host.margin_mean));
    ASSERT_TRUE(SameBits(device.z_mean, host.z_mean));
    ASSERT_TRUE(SameBits(device.logit_abs_max, host.logit_abs_max));
  }
  cudaStreamDestroy(stream);
  cudaFree(workspace);
  cudaFreeHost(raw);
}

// Empty where a device can run the tests, else why not.
std::string WhyNot() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return "";
  return std::string("no CUDA GPU: ") + cudaGetErrorString(error);
}

#else

std::string WhyNot() { return "no CUDA GPU can be used: built without the CUDA toolkit"; }

#endif

}  // namespace
}  // namespace plumbline

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string why_not = plumbline::WhyNot();
  if (!why_not.empty()) {
    std::printf("skipped: %s\n", why_not.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
