// Measures statistics of tensors. Bounds: a device copy and one read of the same bytes. Peer: the
// same figures with one reduction each, like a tensor library. Also measures updates and sampled
// gathers.
#include <cuda_bf16.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/gpu/device_memory.h"
#include "bench/gpu/row_kernels.cuh"
#include "kernels/sample/batch.h"
#include "kernels/sample/device.h"
#include "kernels/sample/gather.h"
#include "kernels/tensor/batch.h"
#include "kernels/tensor/device.h"
#include "kernels/update/batch.h"
#include "kernels/update/device.h"

namespace plumbline::gpu {
namespace {

constexpr int64_t kLarge = int64_t{1} << 28;  // elements; larger than any cache

// A batch, and the memory of its launches.
template <typename Batch>
struct Planned {
  explicit Planned(absl::StatusOr<Batch> planned)
      : batch(*std::move(planned)),
        staging(batch.shape().bytes() + 1),
        workspace(BatchWorkspace(batch.shape())) {
    Must(cudaMemset(workspace.data(), 0, BatchWorkspace(batch.shape())), "workspace");
    batch.Put(static_cast<std::byte*>(staging.data()));
  }
  BatchMemory memory() const {
    return {staging.data(), staging.data(), workspace.data(), BatchWorkspace(batch.shape())};
  }
  Batch batch;
  PinnedMemory staging;
  DeviceMemory workspace;
};

TensorView OnDevice(const void* data, DType t, int64_t n) {
  TensorView view = TensorView::Dense(data, t, n);
  view.device = 0;
  return view;
}

void TimeStats(benchmark::State& state, const std::vector<TensorView>& views, int64_t bytes) {
  Must(static_cast<cudaError_t>(LoadTensorStatsKernel()), "kernels");
  Planned<TensorBatch> p(TensorBatch::Plan(views));
  TimeLaunches(state, bytes, [&](cudaStream_t stream) {
    return LaunchTensorStats(p.batch.shape(), Processors(), p.memory(), SampledPart(), stream);
  });
}

void Stats(benchmark::State& state, DType t) {
  const int64_t n = state.range(0);
  const auto bytes = n * static_cast<int64_t>(DTypeSize(t));
  const DeviceMemory x(static_cast<size_t>(bytes));
  FillNormal(x.data(), t, n, 0.02f, 1);
  TimeStats(state, {OnDevice(x.data(), t, n)}, bytes);
}

// Measures a model's parameters: two vectors and some matrices per layer.
void StatsOfMany(benchmark::State& state, DType t) {
  constexpr int64_t kLayer[] = {4096, 4096, 4096 * 4096, 4096 * 4096, 1024 * 4096, 3 * 4096};
  std::vector<int64_t> sizes;
  int64_t n = 0;
  for (int layer = 0; layer < 8; ++layer) {
    for (const int64_t size : kLayer) {
      sizes.push_back(size);
      n += size;
    }
  }
  const auto size = static_cast<int64_t>(DTypeSize(t));
  const DeviceMemory x(static_cast<size_t>(n * size));
  FillNormal(x.data(), t, n, 0.02f, 1);
  std::vector<TensorView> views;
  int64_t at = 0;
  for (const int64_t count : sizes) {
    views.push_back(OnDevice(x.at(static_cast<size_t>(at * size)), t, count));
    at += count;
  }
  TimeStats(state, views, n * size);
}

__device__ float AsFloat(float x) { return x; }
__device__ float AsFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

enum class Figure { kSum, kMagnitude, kSquare, kNan, kInfinity, kZero, kSubnormal, kMax, kMin };

template <typename T, Figure figure>
struct Of {
  const T* x;
  __device__ float operator()(int64_t i, int64_t) const {
    const float v = AsFloat(x[i]);
    switch (figure) {
      case Figure::kMagnitude:
        return fabsf(v);
      case Figure::kSquare:
        return v * v;
      case Figure::kNan:
        return isnan(v) ? 1.0f : 0.0f;
      case Figure::kInfinity:
        return isinf(v) ? 1.0f : 0.0f;
      case Figure::kZero:
        return v == 0 ? 1.0f : 0.0f;
      case Figure::kSubnormal:
        return v != 0 && fabsf(v) < 0x1p-126f ? 1.0f : 0.0f;
      case Figure::kMin:
        return -v;
      default:
        return v;
    }
  }
};

// Computes the figures of TensorStats except the digest and the histogram, which no library has:
// each with one pass over rows, then one over the rows' results.
template <typename T>
class ManyPasses {
 public:
  ManyPasses(const T* x, int64_t n)
      : x_(x),
        n_(n),
        parts_(static_cast<size_t>(n / kWidth) * sizeof(float)),
        result_(sizeof(float)) {}

  void Launch(cudaStream_t stream) const {
    Pass<Add, Figure::kSum>(stream);
    Pass<Add, Figure::kMagnitude>(stream);
    Pass<Add, Figure::kSquare>(stream);
    Pass<Add, Figure::kNan>(stream);
    Pass<Add, Figure::kInfinity>(stream);
    Pass<Add, Figure::kZero>(stream);
    Pass<Add, Figure::kSubnormal>(stream);
    Pass<Larger, Figure::kMax>(stream);
    Pass<Larger, Figure::kMin>(stream);
  }

 private:
  static constexpr int64_t kWidth = 1 << 14;

  template <typename Join, Figure figure>
  void Pass(cudaStream_t stream) const {
    auto* parts = static_cast<float*>(parts_.data());
    Rows{n_ / kWidth, kWidth, stream}.template Reduce<Join>(parts, Of<T, figure>{x_});
    Rows{1, n_ / kWidth, stream}.template Reduce<Join>(static_cast<float*>(result_.data()),
                                                       Of<float, Figure::kSum>{parts});
  }

  const T* x_;
  int64_t n_;
  DeviceMemory parts_, result_;
};

template <typename T, DType t>
void StatsInManyPasses(benchmark::State& state) {
  const int64_t n = state.range(0);
  const auto bytes = n * static_cast<int64_t>(sizeof(T));
  const DeviceMemory x(static_cast<size_t>(bytes));
  FillNormal(x.data(), t, n, 0.02f, 1);
  const ManyPasses<T> passes(static_cast<const T*>(x.data()), n);
  TimeLaunches(state, bytes, [&](cudaStream_t stream) {
    passes.Launch(stream);
    return cudaGetLastError();
  });
}

void Copy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const DeviceMemory from(bytes), to(bytes);
  FillNormal(from.data(), DType::kF32, state.range(0) / 4, 1, 1);
  TimeLaunches(state, 2 * state.range(0), [&](cudaStream_t stream) {
    return cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream);
  });
}

__global__ void ReadKernel(const uint4* x, int64_t n, unsigned* out) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  unsigned seen = 0;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += 4 * step) {
    uint4 v[4] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (i + j * step < n) v[j] = x[i + j * step];
    }
#pragma unroll
    for (const uint4& one : v) seen ^= one.x ^ one.y ^ one.z ^ one.w;
  }
  if (seen == 0x5eed5eedu) *out = seen;  // prevents the compiler from removing the reads
}

void ReadOnce(benchmark::State& state) {
  const DeviceMemory x(static_cast<size_t>(state.range(0))), out(4);
  FillNormal(x.data(), DType::kF32, state.range(0) / 4, 1, 1);
  TimeLaunches(state, state.range(0), [&](cudaStream_t stream) {
    ReadKernel<<<8 * Processors(), 256, 0, stream>>>(static_cast<const uint4*>(x.data()),
                                                     state.range(0) / 16,
                                                     static_cast<unsigned*>(out.data()));
    return cudaGetLastError();
  });
}

// bf16 weights and intended values in f32, as in a trainer without master weights.
void Updates(benchmark::State& state) {
  Must(static_cast<cudaError_t>(LoadUpdateCheckKernel()), "kernels");
  const int64_t n = state.range(0);
  const DeviceMemory before(static_cast<size_t>(2 * n)), after(static_cast<size_t>(2 * n));
  const DeviceMemory intended(static_cast<size_t>(4 * n));
  FillNormal(before.data(), DType::kBF16, n, 0.02f, 1);
  FillNormal(after.data(), DType::kBF16, n, 0.02f, 1);
  FillNormal(intended.data(), DType::kF32, n, 1e-5f, 2);
  const UpdateViews update{OnDevice(before.data(), DType::kBF16, n),
                           OnDevice(after.data(), DType::kBF16, n),
                           OnDevice(intended.data(), DType::kF32, n)};
  Planned<UpdateBatch> p(UpdateBatch::Plan({&update, 1}));
  TimeLaunches(state, 8 * n, [&](cudaStream_t stream) {
    return LaunchUpdateChecks(p.batch.shape(), Processors(), p.memory(), SampledPart(), stream);
  });
}

// Gathers 500 elements of each of 64 tensors.
void Gathers(benchmark::State& state) {
  Must(static_cast<cudaError_t>(LoadGatherKernel()), "kernels");
  constexpr int64_t kElements = int64_t{1} << 22;
  constexpr int kTensors = 64;
  const DeviceMemory x(2 * kElements * kTensors);
  FillNormal(x.data(), DType::kBF16, kElements * kTensors, 1, 1);
  const auto indices = SampleIndices(8, kElements, 500);
  std::vector<GatherRequest> requests;
  for (int i = 0; i < kTensors; ++i) {
    requests.push_back(
        {OnDevice(x.at(static_cast<size_t>(2 * kElements * i)), DType::kBF16, kElements), indices});
  }
  Planned<GatherBatch> p(GatherBatch::Plan(requests));
  TimeLaunches(state, kTensors * 500 * 2, [&](cudaStream_t stream) {
    return LaunchGathers(p.batch.shape(), Processors(), p.memory(), stream);
  });
}

void Sizes(benchmark::internal::Benchmark* b) { b->Arg(1 << 20)->Arg(kLarge)->UseManualTime(); }

// The peer of a kernel moves as many bytes as the kernel reads: a copy of half of them. The odd
// sizes are those of StatsOfMany and the logit pairs.
BENCHMARK(Copy)
    ->Arg(1 << 20)
    ->Arg(1 << 27)
    ->Arg(1 << 28)
    ->Arg(302153728)
    ->Arg(311164928)
    ->Arg(1 << 29)
    ->Arg(622329856)
    ->UseManualTime();
BENCHMARK(ReadOnce)->Arg(2 << 20)->Arg(1 << 29)->Arg(1 << 30)->UseManualTime();
BENCHMARK_CAPTURE(Stats, f32, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(Stats, bf16, DType::kBF16)->Apply(Sizes);
BENCHMARK_CAPTURE(Stats, f16, DType::kF16)->Apply(Sizes);
BENCHMARK_CAPTURE(Stats, e4m3, DType::kE4M3)->Apply(Sizes);
BENCHMARK_CAPTURE(Stats, e5m2, DType::kE5M2)->Apply(Sizes);
BENCHMARK_CAPTURE(StatsOfMany, bf16, DType::kBF16)->UseManualTime();
BENCHMARK(StatsInManyPasses<float, DType::kF32>)->Name("StatsInManyPasses/f32")->Apply(Sizes);
BENCHMARK(StatsInManyPasses<__nv_bfloat16, DType::kBF16>)
    ->Name("StatsInManyPasses/bf16")
    ->Apply(Sizes);
BENCHMARK(Updates)->Apply(Sizes);
BENCHMARK(Gathers)->UseManualTime();

}  // namespace
}  // namespace plumbline::gpu
