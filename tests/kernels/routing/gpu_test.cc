// Compares the device kernel with the CPU reference: the same integers, the same bits of the means.
// Needs a GPU.
#include "tests/kernels/device/gpu.h"

#if defined(PLUMBLINE_HAVE_CUDA)
#include "kernels/routing/device.h"
#include "tests/kernels/routing/case.h"
#include "tests/kernels/routing/stats_equal.h"
#endif

namespace plumbline {
namespace {

#if defined(PLUMBLINE_HAVE_CUDA)

constexpr int kProcessors = 132;  // sets the number of blocks, and does not change the result

TEST(RoutingGpu, KernelEqualsTheCpuReferenceBitForBit) {
  RoutingRaw* raw = nullptr;
  ASSERT_EQ(cudaMallocHost(&raw, sizeof(RoutingRaw)), cudaSuccess);
  void* workspace = nullptr;
  const size_t bytes = RoutingWorkspaceBytes(1 << 17, kMaxExperts);
  ASSERT_EQ(cudaMalloc(&workspace, bytes), cudaSuccess);
  ASSERT_EQ(LoadRoutingKernels(), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  for (uint32_t seed = 0; seed < Cases(600); ++seed) {
    SCOPED_TRACE(seed);
    CaseOptions options;
    options.aligned = true;
    options.max_tokens = seed % 50 == 0 ? 100000 : 900;
    const RoutingCase c = CaseMaker(seed, options).Make();
    RoutingStats host;
    ASSERT_TRUE(SummariseRouting(c.in, &host).ok());
    DeviceCopies copies;
    RoutingPlan plan;
    ASSERT_TRUE(PlanRouting(copies.Copy(c), &plan).ok());
    ASSERT_EQ(LaunchRouting(plan, kProcessors, workspace, raw, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    RoutingStats device;
    ASSERT_TRUE(FinishRouting(plan, *raw, &device).ok());
    ExpectSame(device, host);
    if (HasFailure()) break;
  }
  cudaStreamDestroy(stream);
  cudaFree(workspace);
  cudaFreeHost(raw);
}

#endif

}  // namespace
}  // namespace plumbline

int main(int argc, char** argv) { return plumbline::RunOnGpu(argc, argv); }
