// Compares tensor statistics, update checks and sampled gathers of many tensors on a device with
// the host versions: the same bits, for any launch shape. Needs a GPU.
#include "tests/kernels/device/gpu.h"

#if defined(PLUMBLINE_HAVE_CUDA)
#include "kernels/sample/batch.h"
#include "kernels/sample/device.h"
#include "kernels/sample/gather.h"
#include "kernels/tensor/batch.h"
#include "kernels/tensor/device.h"
#include "kernels/update/batch.h"
#include "kernels/update/device.h"
#include "tests/kernels/device/values_case.h"
#include "tests/kernels/tensor/stats_equal.h"
#include "tests/kernels/update/batch_case.h"
#endif

namespace plumbline {
namespace {

#if defined(PLUMBLINE_HAVE_CUDA)

constexpr int kProcessors[] = {1, 7, 132};  // launch shapes

// Memory for one launch, and a stream.
template <typename Batch>
class Launcher {
 public:
  explicit Launcher(const Batch& batch) : batch_(batch) {
    const size_t bytes = batch.shape().bytes() + 1;
    EXPECT_EQ(cudaMallocHost(&staging_, bytes), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&workspace_, bytes + kArrivedBytes), cudaSuccess);
    EXPECT_EQ(cudaMemset(workspace_, 0, bytes + kArrivedBytes), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~Launcher() {
    cudaStreamDestroy(stream_);
    cudaFree(workspace_);
    cudaFreeHost(staging_);
  }
  template <typename Launch>
  auto Run(Launch launch, int processors) {
    auto* staging = static_cast<std::byte*>(staging_);
    batch_.Put(staging);
    const BatchMemory memory{staging_, staging_, workspace_, BatchWorkspace(batch_.shape())};
    EXPECT_EQ(launch(batch_.shape(), processors, memory, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return batch_.Finish(staging + batch_.shape().results_at());
  }

 private:
  const Batch& batch_;
  void* staging_ = nullptr;
  void* workspace_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// Wraps launches that could also copy elements: here they do not.
template <typename Launch>
auto Bare(Launch launch) {
  return [=](const BatchShape& batch, int processors, const BatchMemory& memory, void* stream) {
    return launch(batch, processors, memory, SampledPart(), stream);
  };
}

TEST(BatchGpu, TensorStatisticsEqualTheCpuReferenceInEveryBit) {
  ASSERT_EQ(LoadTensorStatsKernel(), cudaSuccess);
  std::vector<ValuesCase> cases;
  int layout = 0;
  for (const DType t : kFloatingTypes) {
    for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
      for (const int64_t n : {0, 1, 3, 33, 128, 1000, 1024, 1025, 5000, 70001}) {
        layout += layout % 6 == 0 ? 2 : 1;  // data on a device are aligned
        cases.push_back(
            Lay(t, ValuesMaker(static_cast<uint64_t>(layout)).Make(t, static_cast<Kind>(kind), n),
                layout));
      }
    }
    cases.push_back(Lay(t, ValuesMaker(1).Make(t, Kind::kNormal, Cases(3000001)), 0));
  }
  DeviceCopies copies;
  std::vector<TensorView> views;
  for (const ValuesCase& c : cases) views.push_back(copies.Copy(c.view, c.storage));
  const absl::StatusOr<TensorBatch> batch = TensorBatch::Plan(views);
  ASSERT_TRUE(batch.ok()) << batch.status();
  Launcher launcher(*batch);
  for (const int processors : kProcessors) {
    const std::vector<TensorStats> device = launcher.Run(Bare(LaunchTensorStats), processors);
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "tensor " << i << " " << DTypeName(views[i].dtype));
      TensorStats host;
      ASSERT_TRUE(MeasureTensor(cases[i].view, &host).ok());
      ExpectSame(device[i], host);
      if (HasFailure()) return;
    }
  }
}

TEST(BatchGpu, UpdateChecksEqualTheCpuReferenceInEveryBit) {
  ASSERT_EQ(LoadUpdateCheckKernel(), cudaSuccess);
  const UpdateBatchCase c(1);
  DeviceCopies copies;
  std::vector<UpdateViews> updates;
  for (size_t i = 0; i < c.cases().size(); i += 3) {
    const auto copy = [&](const ValuesCase& one) { return copies.Copy(one.view, one.storage); };
    updates.push_back({copy(c.cases()[i]), copy(c.cases()[i + 1]), copy(c.cases()[i + 2])});
  }
  const absl::StatusOr<UpdateBatch> batch = UpdateBatch::Plan(updates);
  ASSERT_TRUE(batch.ok()) << batch.status();
  Launcher launcher(*batch);
  for (const int processors : kProcessors) {
    c.ExpectCpuReferences(launcher.Run(Bare(LaunchUpdateChecks), processors));
  }
}

TEST(BatchGpu, SampledGathersEqualTheCpuReference) {
  ASSERT_EQ(LoadGatherKernel(), cudaSuccess);
  std::vector<ValuesCase> cases;
  int layout = 0;
  for (const DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kE4M3, DType::kI64}) {
    for (const int64_t n : {1, 10, 8400}) {
      layout += layout % 6 == 0 ? 2 : 1;
      cases.push_back(Lay(t, ValuesMaker(5).Make(t, Kind::kNormal, n), layout));
    }
  }
  DeviceCopies copies;
  std::vector<std::vector<uint64_t>> indices;
  std::vector<GatherRequest> requests;
  for (const ValuesCase& c : cases) {
    indices.push_back(SampleIndices(8, static_cast<uint64_t>(c.view.elements()), 500));
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    requests.push_back({copies.Copy(cases[i].view, cases[i].storage), indices[i]});
  }
  const absl::StatusOr<GatherBatch> batch = GatherBatch::Plan(requests);
  ASSERT_TRUE(batch.ok()) << batch.status();
  Launcher launcher(*batch);
  const auto gathered = launcher.Run(LaunchGathers, 132);
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<std::byte> host(indices[i].size() * DTypeSize(cases[i].view.dtype));
    ASSERT_TRUE(GatherSamples(cases[i].view, indices[i], host.data()).ok());
    EXPECT_EQ(gathered[i], host) << i;
  }
}

TEST(BatchGpu, HostTensorsAndMissingMemoryAreRefused) {
  const float x[4] = {};
  TensorView view = TensorView::Dense(x, DType::kF32, 4);
  const TensorBatch host = TensorBatch::Plan({&view, 1}).value();
  char memory[1];
  const SampledPart none{};
  EXPECT_EQ(LaunchTensorStats(host.shape(), 1, {memory, memory, memory, 1}, none, nullptr),
            cudaErrorInvalidValue);
  view.device = 0;
  const TensorBatch device = TensorBatch::Plan({&view, 1}).value();
  for (const BatchMemory& lacks :
       {BatchMemory{nullptr, memory, memory, 1}, BatchMemory{memory, nullptr, memory, 1},
        BatchMemory{memory, memory, nullptr, 1}}) {
    EXPECT_EQ(LaunchTensorStats(device.shape(), 1, lacks, none, nullptr), cudaErrorInvalidValue);
  }
}

#endif

}  // namespace
}  // namespace plumbline

int main(int argc, char** argv) { return plumbline::RunOnGpu(argc, argv); }
