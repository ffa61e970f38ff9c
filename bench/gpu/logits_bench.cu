// Compares rows of logits of both sides in one read. Peer: the same figures with one operation per
// kernel on f32, like a tensor library: both sides to f32, log_softmax of each, its exponential,
// entropies and varentropies, both divergences, argmaxes, the mean and the largest difference and
// the sums of a line fit.
#include <cuda_bf16.h>

#include <memory>

#include "bench/gpu/device_memory.h"
#include "bench/gpu/row_kernels.cuh"
#include "kernels/logits/pair_device.h"

namespace plumbline::gpu {
namespace {

// Logits of a rollout, and of a trainer that differs by rounding and a little more.
struct Logits {
  Logits(DType t, int64_t rows, int64_t vocabulary)
      : bytes(rows * vocabulary * static_cast<int64_t>(DTypeSize(t))),
        train(static_cast<size_t>(bytes)),
        rollout(static_cast<size_t>(bytes)) {
    FillNormal(train.data(), t, rows * vocabulary, 3, 1);
    FillNormal(rollout.data(), t, rows * vocabulary, 3.01f, 1);
    for (int s = 0; s < 2; ++s) {
      TensorView& view = s == 0 ? input.train : input.rollout;
      view = TensorView::Dense(s == 0 ? train.data() : rollout.data(), t, rows, vocabulary);
      view.device = 0;
    }
  }
  int64_t bytes;  // of one side
  DeviceMemory train, rollout;
  LogitInput input;
};

void Pair(benchmark::State& state, DType t, bool detailed) {
  Must(static_cast<cudaError_t>(LoadLogitKernels()), "kernels");
  const int64_t rows = state.range(0);
  const Logits logits(t, rows, state.range(1));
  const DeviceMemory out(static_cast<size_t>(rows) * sizeof(LogitRow));
  const LogitPlan plan = PlanLogits(logits.input);
  LogitLaunch launch;
  launch.count = rows;
  launch.detailed = detailed ? rows : 0;
  TimeLaunches(state, 2 * logits.bytes, [&](cudaStream_t stream) {
    return LaunchLogits(plan, launch, Processors(), static_cast<LogitRow*>(out.data()), stream);
  });
}

// The inputs and outputs of one operation: f32 matrices, and one number per row.
struct Upcast {
  const __nv_bfloat16* x;
  float* to;
  __device__ void operator()(int64_t i, int64_t) const { to[i] = __bfloat162float(x[i]); }
};
struct Value {
  const float* x;
  __device__ float operator()(int64_t i, int64_t) const { return x[i]; }
};
struct Square {
  const float* x;
  __device__ float operator()(int64_t i, int64_t) const { return x[i] * x[i]; }
};
struct Product {
  const float *x, *y;
  __device__ float operator()(int64_t i, int64_t) const { return x[i] * y[i]; }
};
struct ExpShifted {
  const float *x, *max;
  __device__ float operator()(int64_t i, int64_t row) const { return expf(x[i] - max[row]); }
};
struct LogSoftmax {
  const float *x, *max, *sum;
  float* to;
  __device__ void operator()(int64_t i, int64_t row) const {
    to[i] = x[i] - max[row] - logf(sum[row]);
  }
};
struct Exponential {
  const float* x;
  float* to;
  __device__ void operator()(int64_t i, int64_t) const { to[i] = expf(x[i]); }
};
struct Spread {  // weighted spread of x about y's row mean
  const float *weight, *x, *mean;
  __device__ float operator()(int64_t i, int64_t row) const {
    return weight[i] * (x[i] + mean[row]) * (x[i] + mean[row]);
  }
};
struct Divergence {
  const float *p, *log_p, *log_q;
  __device__ float operator()(int64_t i, int64_t) const { return p[i] * (log_p[i] - log_q[i]); }
};
struct Difference {
  const float *x, *y;
  float* to;
  __device__ void operator()(int64_t i, int64_t) const { to[i] = x[i] - y[i]; }
};
struct Deviation {  // deviation from the row's mean
  const float *x, *sum;
  float width;
  __device__ float operator()(int64_t i, int64_t row) const {
    return fabsf(x[i] - sum[row] / width);
  }
};
struct ArgMax {  // the index as a float: it costs what an argmax must read, and a comparison
  const float *x, *max;
  __device__ float operator()(int64_t i, int64_t row) const {
    return x[i] == max[row] ? static_cast<float>(i) : -1.0f;
  }
};

class ManyPasses {
 public:
  ManyPasses(const Logits& logits, int64_t rows, int64_t width)
      : logits_(logits),
        rows_(rows),
        width_(width),
        matrices_(kMatrices * static_cast<size_t>(rows * width) * sizeof(float)),
        numbers_(kNumbers * static_cast<size_t>(rows) * sizeof(float)) {}

  void Launch(cudaStream_t stream) const {
    const Rows on{rows_, width_, stream};
    for (int s = 0; s < 2; ++s) Side(on, s);
    for (int s = 0; s < 2; ++s) {
      on.Reduce<Add>(Number(4 + s), Divergence{Matrix(4 + s), Matrix(2 + s), Matrix(3 - s)});
    }
    float* difference = Matrix(6);
    on.Each(Difference{Matrix(0), Matrix(1), difference});
    on.Reduce<Add>(Number(6), Value{difference});
    on.Reduce<Larger>(Number(7), Deviation{difference, Number(6), static_cast<float>(width_)});
    on.Reduce<Add>(Number(8), Value{Matrix(1)});
    on.Reduce<Add>(Number(9), Square{Matrix(1)});
    on.Reduce<Add>(Number(10), Product{Matrix(1), difference});
  }

 private:
  static constexpr size_t kMatrices = 7, kNumbers = 16;  // f32

  float* Matrix(int i) const {  // 0, 1 logits; 2, 3 log_softmax; 4, 5 probabilities; 6 difference
    return static_cast<float*>(matrices_.data()) + i * rows_ * width_;
  }
  float* Number(int i) const { return static_cast<float*>(numbers_.data()) + i * rows_; }

  void Side(const Rows& on, int s) const {
    const DeviceMemory& from = s == 0 ? logits_.train : logits_.rollout;
    const float* x = Matrix(s);
    float *max = Number(11 + s), *sum = Number(13 + s);
    on.Each(Upcast{static_cast<const __nv_bfloat16*>(from.data()), Matrix(s)});
    on.Reduce<Larger>(max, Value{x});
    on.Reduce<Add>(sum, ExpShifted{x, max});
    on.Each(LogSoftmax{x, max, sum, Matrix(2 + s)});
    on.Each(Exponential{Matrix(2 + s), Matrix(4 + s)});
    on.Reduce<Add>(Number(s), Product{Matrix(4 + s), Matrix(2 + s)});
    on.Reduce<Add>(Number(2 + s), Spread{Matrix(4 + s), Matrix(2 + s), Number(s)});
    on.Reduce<Larger>(Number(15), ArgMax{x, max});
  }

  const Logits& logits_;
  int64_t rows_, width_;
  DeviceMemory matrices_, numbers_;
};

void PairInManyPasses(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const Logits logits(DType::kBF16, rows, state.range(1));
  const ManyPasses passes(logits, rows, state.range(1));
  TimeLaunches(state, 2 * logits.bytes, [&](cudaStream_t stream) {
    passes.Launch(stream);
    return cudaGetLastError();
  });
}

void Sizes(benchmark::internal::Benchmark* b) {
  b->Args({64, 151936})->Args({1024, 151936})->Args({4096, 32000})->UseManualTime();
}
BENCHMARK_CAPTURE(Pair, bf16, DType::kBF16, false)->Apply(Sizes);
BENCHMARK_CAPTURE(Pair, f32, DType::kF32, false)->Apply(Sizes);
BENCHMARK_CAPTURE(Pair, bf16_detailed, DType::kBF16, true)->Apply(Sizes);
BENCHMARK(PairInManyPasses)->Apply(Sizes);

}  // namespace
}  // namespace plumbline::gpu
