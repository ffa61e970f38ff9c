// Measures tensor statistics on one core. Bounds: a memcpy of the same bytes, and one pass that
// only adds.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/tensor/stats.h"

namespace plumbline {
namespace {

// Returns normal values of deviation 0.02, like weights.
std::vector<std::byte> Values(DType t, int64_t n) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, 0.02f);
  const size_t size = DTypeSize(t);
  std::vector<std::byte> out(static_cast<size_t>(n) * size);
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    const float x = normal(random);
    const double wide = x;
    uint32_t code = __builtin_bit_cast(uint32_t, x);
    const void* from = &code;
    if (t == DType::kBF16) code = FloatToBF16(x);
    if (t == DType::kF16) code = FloatToF16(x);
    if (t == DType::kE4M3) code = FloatToE4M3(x);
    if (t == DType::kE5M2) code = FloatToE5M2(x);
    if (t == DType::kF64) from = &wide;
    std::memcpy(out.data() + i * size, from, size);
  }
  return out;
}

void Stats(benchmark::State& state, DType t) {
  const int64_t n = state.range(0);
  const std::vector<std::byte> data = Values(t, n);
  TensorStats stats;
  for (auto _ : state) {
    if (!MeasureTensor(TensorView::Dense(data.data(), t, n), &stats).ok())
      state.SkipWithError("refused");
    benchmark::DoNotOptimize(stats.sum);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(data.size()));
  state.SetItemsProcessed(state.iterations() * n);
}

void Transposed(benchmark::State& state, DType t) {
  const int64_t n = state.range(0);
  const std::vector<std::byte> data = Values(t, n);
  TensorView view = TensorView::Dense(data.data(), t, n / 1024, 1024);
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.stride[0], view.stride[1]);
  TensorStats stats;
  for (auto _ : state) {
    if (!MeasureTensor(view, &stats).ok()) state.SkipWithError("refused");
    benchmark::DoNotOptimize(stats.sum);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(data.size()));
}

void Memcpy(benchmark::State& state) {
  const auto size = static_cast<size_t>(state.range(0)) * 4;
  const std::vector<std::byte> from(size, std::byte{1});
  std::vector<std::byte> to(size);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), size);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(size));
}

// Does one read and one addition per element: the minimum cost of any statistic of f32.
void PlainSum(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<std::byte> data = Values(DType::kF32, n);
  for (auto _ : state) {
    double sum = 0;
    const auto* x = reinterpret_cast<const float*>(data.data());
    for (int64_t i = 0; i < n; ++i) sum += x[i];
    benchmark::DoNotOptimize(sum);
  }
  state.SetBytesProcessed(state.iterations() * n * 4);
}

void Sizes(benchmark::internal::Benchmark* b) {
  b->Arg(64 << 10)->Arg(16 << 20)->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(Stats, f32, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(Stats, bf16, DType::kBF16)->Apply(Sizes);
BENCHMARK_CAPTURE(Stats, f16, DType::kF16)->Apply(Sizes);
BENCHMARK_CAPTURE(Stats, f64, DType::kF64)->Apply(Sizes);
BENCHMARK_CAPTURE(Stats, e4m3, DType::kE4M3)->Apply(Sizes);
BENCHMARK_CAPTURE(Stats, e5m2, DType::kE5M2)->Apply(Sizes);
BENCHMARK_CAPTURE(Transposed, f32, DType::kF32)->Arg(1 << 20)->Unit(benchmark::kMicrosecond);
BENCHMARK(Memcpy)->Apply(Sizes);
BENCHMARK(PlainSum)->Apply(Sizes);

}  // namespace
}  // namespace plumbline
