// Tests tensors and updates through the ring with the real library. Figures and sampled elements
// equal those of the CPU references bit for bit, so the evidence does too
// (device_ring_tensors_test.cc). Needs a GPU; the program's main function is
// device_ring_gpu_test.cc's.
#include "tests/kernels/device/gpu.h"

#if defined(PLUMBLINE_HAVE_CUDA)
#include <type_traits>

#include "tests/probes/gpu_cases.h"

namespace plumbline::probes {
namespace {

class GpuTensorCalls : public GpuTensors {
 protected:
  // Compares the oldest call's figures and elements with those of the host.
  template <typename Call>
  void TakeAsHosts(const Call& host) {
    DeviceItem item;
    ASSERT_TRUE(WaitFront(ring_.get(), &item));
    ASSERT_TRUE(item.measured) << item.why.text;
    if constexpr (std::is_same_v<Call, TensorCall>) {
      ASSERT_NE(item.tensor, nullptr);
      ExpectHosts(host, *item.tensor);
    } else {
      ASSERT_NE(item.update, nullptr);
      ExpectHosts(host, *item.update);
    }
    ring_->Pop();
  }
};

TEST_F(GpuTensorCalls, FiguresAndElementsAreTheHostsBitForBit) {
  for (uint32_t seed = 0; seed < Cases(400); ++seed) {
    SCOPED_TRACE(seed);
    const TensorCase c(seed);
    ASSERT_EQ(Observe(Copy(c), OptionsOf(seed, seed % 3 != 0), stream_), DeviceOutcome::kTaken)
        << error_.text;
    TakeAsHosts(c.host());
    if (HasFailure()) return;
  }
}

TEST_F(GpuTensorCalls, OfUpdatesToo) {
  for (uint32_t seed = 0; seed < Cases(300); ++seed) {
    SCOPED_TRACE(seed);
    const UpdateCase c(seed);
    ASSERT_EQ(Observe(Copy(c), OptionsOf(seed, seed % 3 != 0), stream_), DeviceOutcome::kTaken)
        << error_.text;
    TakeAsHosts(c.host());
    if (HasFailure()) return;
  }
}

TEST_F(GpuTensorCalls, LargeOnesToo) {
  constexpr int64_t kElements = 3'000'001;
  const ValuesCase values =
      Lay(DType::kBF16, ValuesMaker(1).Make(DType::kBF16, Kind::kNormal, kElements), 0);
  TensorCall host;
  host.values = values.view;
  TensorCall device = host;
  device.values = copies_.Copy(values.view, values.storage);
  ASSERT_EQ(Observe(device, OptionsOf(1, true), stream_), DeviceOutcome::kTaken);
  TakeAsHosts(host);
  UpdateCall update, on_device;
  update.input.before = update.input.after = update.input.intended = values.view;
  on_device.input.before = on_device.input.after = on_device.input.intended = device.values;
  ASSERT_EQ(Observe(on_device, OptionsOf(1, true), stream_), DeviceOutcome::kTaken);
  TakeAsHosts(update);
}

// Calls of all kinds on several streams at once, without waiting. Each stream has a workspace.
TEST_F(GpuTensorCalls, NothingWaitsAndNothingMixes) {
  const TensorCase tensor(3);
  const UpdateCase update(4);
  const TensorCall device_tensor = Copy(tensor);
  const UpdateCall device_update = Copy(update);
  const MeasureOptions options = OptionsOf(3, true);
  ASSERT_EQ(Observe(device_tensor, options, stream_), DeviceOutcome::kTaken);
  TakeAsHosts(tensor.host());  // prepared the memory
  cudaStream_t streams[kDeviceStreams] = {};
  for (cudaStream_t& s : streams) {
    ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  }
  Blocker blocker(streams[0]);
  for (int i = 0; i < 40; ++i) {
    cudaStream_t on = streams[i % kDeviceStreams];
    const DeviceOutcome o =
        i % 2 == 0 ? Observe(device_tensor, options, on) : Observe(device_update, options, on);
    ASSERT_EQ(o, DeviceOutcome::kTaken) << error_.text;
  }
  DeviceItem item;
  EXPECT_FALSE(ring_->Front(&item)) << "the stream cannot have got there";
  blocker.Release();
  for (int i = 0; i < 40; ++i) {
    if (i % 2 == 0) {
      TakeAsHosts(tensor.host());
    } else {
      TakeAsHosts(update.host());
    }
  }
  for (cudaStream_t s : streams) cudaStreamDestroy(s);
}

TEST_F(GpuTensorCalls, CapturesAreSkippedAndErrorsAreTheTrainers) {
  const TensorCase c(3);
  const TensorCall device = Copy(c);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(Observe(device, OptionsOf(3, true), stream_), DeviceOutcome::kCapturing);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  size_t nodes = 99;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 0u);
  cudaGraphDestroy(graph);
  void* huge = nullptr;
  ASSERT_EQ(cudaMalloc(&huge, size_t{1} << 60), cudaErrorMemoryAllocation);
  ASSERT_EQ(Observe(device, OptionsOf(3, true), stream_), DeviceOutcome::kTaken);
  TakeAsHosts(c.host());
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation) << "ours to read, not the library's";
}

}  // namespace
}  // namespace plumbline::probes
#endif
