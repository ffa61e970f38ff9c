// Tests the ring with the real library, which the fake only simulates. Needs a GPU.
#include "tests/kernels/device/gpu.h"

#if defined(PLUMBLINE_HAVE_CUDA)
#include <cuda.h>

#include <string>
#include <thread>

#include "tests/probes/gpu_cases.h"
#endif

namespace plumbline::probes {
namespace {

#if defined(PLUMBLINE_HAVE_CUDA)

TEST_F(GpuRing, MeasurementAndRowsAreTheHostsBitForBit) {
  for (uint32_t seed = 0; seed < Cases(300); ++seed) {
    SCOPED_TRACE(seed);
    const GpuCase c(seed, seed % 50 == 0 ? 20000 : 900);
    ASSERT_EQ(Observe(c.device, stream_), DeviceOutcome::kTaken) << error_.text;
    DeviceItem item;
    ASSERT_TRUE(WaitFront(ring_.get(), &item));
    ASSERT_TRUE(item.measured) << item.why.text;
    ExpectCounts(c.host, item);
    ExpectRows(c.host, item.call);
    ring_->Pop();
  }
}

TEST_F(GpuRing, NothingWaitsForTheStream) {
  const GpuCase c(3);
  ASSERT_EQ(Observe(c.device, stream_), DeviceOutcome::kTaken);  // prepares this width
  Take();
  Blocker blocker(stream_);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(Observe(c.device, stream_), DeviceOutcome::kTaken);
  DeviceItem item;
  EXPECT_FALSE(ring_->Front(&item)) << "the stream cannot have got there";
  blocker.Release();
  for (int i = 0; i < 50; ++i) Take();
}

TEST_F(GpuRing, DefaultStreamsWork) {
  const GpuCase c(4);
  for (cudaStream_t s : {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread}) {
    EXPECT_EQ(Observe(c.device, s), DeviceOutcome::kTaken) << error_.text;
    Take();
  }
}

TEST_F(GpuRing, CapturesAreSkippedAndLeftWhole) {
  const GpuCase c(5);
  ASSERT_EQ(Observe(c.device, stream_), DeviceOutcome::kTaken);
  Take();
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  for (cudaStream_t captured : {stream_, blocking}) {
    ASSERT_EQ(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_EQ(Observe(c.device, captured), DeviceOutcome::kCapturing);
    if (captured == blocking) {  // the legacy stream would join this capture
      EXPECT_EQ(Observe(c.device, nullptr), DeviceOutcome::kCapturing);
    }
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(captured, &graph), cudaSuccess);
    size_t nodes = 99;
    EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
    EXPECT_EQ(nodes, 0u);
    cudaGraphDestroy(graph);
  }
  cudaStreamDestroy(blocking);
}

// The drain thread queries events while the trainer captures. This must not invalidate the capture.
TEST_F(GpuRing, TheDrainThreadDoesNotSpoilACapture) {
  const GpuCase c(6);
  cudaStream_t captured = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking), cudaSuccess);
  Blocker blocker(stream_);
  ASSERT_EQ(Observe(c.device, stream_), DeviceOutcome::kTaken);
  ASSERT_EQ(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(Observe(c.device, stream_), DeviceOutcome::kTaken) << "another stream is no capture";
  std::thread drain([&] {
    DeviceItem item;
    EXPECT_FALSE(ring_->Front(&item));
  });
  drain.join();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(captured, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
  blocker.Release();
  Take();
  Take();
  cudaStreamDestroy(captured);
}

TEST_F(GpuRing, TheTrainersContextAndErrorsAreItsOwn) {
  const GpuCase c(7);
  void* huge = nullptr;
  ASSERT_EQ(cudaMalloc(&huge, size_t{1} << 60), cudaErrorMemoryAllocation);
  ASSERT_EQ(Observe(c.device, stream_), DeviceOutcome::kTaken);
  Take();
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation) << "ours to read, not the library's";

  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(driver, nullptr);
  auto* current = reinterpret_cast<CUresult (*)(CUcontext*)>(dlsym(driver, "cuCtxGetCurrent"));
  std::thread fresh([&] {  // a thread that has not used a device yet
    CUcontext context = nullptr;
    EXPECT_EQ(current(&context), CUDA_SUCCESS);
    EXPECT_EQ(context, nullptr);
    EXPECT_EQ(Observe(c.device, stream_), DeviceOutcome::kTaken);
    Take();
    EXPECT_EQ(current(&context), CUDA_SUCCESS);
    EXPECT_EQ(context, nullptr);
  });
  fresh.join();
}

TEST_F(GpuRing, ADeviceThatIsNotThereIsAnError) {
  DeviceError error{};
  EXPECT_EQ(DeviceRing::Open(g_table, 31, {}, &error), nullptr);
  EXPECT_NE(std::string(error.text), "");
}

#else

void LoadTable() {}

#endif

}  // namespace
}  // namespace plumbline::probes

int main(int argc, char** argv) {
  return plumbline::RunOnGpu(argc, argv, plumbline::probes::LoadTable);
}
