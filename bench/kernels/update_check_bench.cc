// Measures the update check on one core. Bounds: a pass that only reads its three tensors, and a
// memcpy of them. Also measures the drawing and gathering of a full sample.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/sample/gather.h"
#include "kernels/update/check.h"

namespace plumbline {
namespace {

struct Update {
  std::vector<uint16_t> before, after;
  std::vector<float> intended;

  explicit Update(int64_t n) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < n; ++i) {
      before.push_back(FloatToBF16(0.02f * normal(random)));
      intended.push_back(1e-4f * normal(random));
      after.push_back(FloatToBF16(BF16ToFloat(before.back()) + intended.back()));
    }
  }
};

void UpdateBF16(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Update update(n);
  UpdateStats stats;
  for (auto _ : state) {
    if (!CheckUpdate(TensorView::Dense(update.before.data(), DType::kBF16, n),
                     TensorView::Dense(update.after.data(), DType::kBF16, n),
                     TensorView::Dense(update.intended.data(), DType::kF32, n), &stats)
             .ok()) {
      state.SkipWithError("refused");
    }
    benchmark::DoNotOptimize(stats.lost);
  }
  state.SetBytesProcessed(state.iterations() * n * 8);
  state.SetItemsProcessed(state.iterations() * n);
}

void ReadThree(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Update update(n);
  for (auto _ : state) {
    uint64_t lost = 0;
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      lost += update.before[i] == update.after[i] && update.intended[i] != 0 ? 1 : 0;
    }
    benchmark::DoNotOptimize(lost);
  }
  state.SetBytesProcessed(state.iterations() * n * 8);
}

void Memcpy(benchmark::State& state) {
  const auto size = static_cast<size_t>(state.range(0)) * 8;
  const std::vector<std::byte> from(size, std::byte{1});
  std::vector<std::byte> to(size);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), size);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(size));
}

// Gathers 4,096 of n elements: indices, order and copies.
void SampleGather(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<float> x(static_cast<size_t>(n), 1.0f);
  std::vector<std::byte> out(kMaxSamples * 4);
  uint64_t key = 0;
  for (auto _ : state) {
    const std::vector<uint64_t> indices = SampleIndices(++key, static_cast<uint64_t>(n));
    if (!GatherSamples(TensorView::Dense(x.data(), DType::kF32, n), indices, out.data()).ok()) {
      state.SkipWithError("refused");
    }
    benchmark::DoNotOptimize(out.data());
  }
}

void Sizes(benchmark::internal::Benchmark* b) {
  b->Arg(64 << 10)->Arg(8 << 20)->Unit(benchmark::kMicrosecond);
}
BENCHMARK(UpdateBF16)->Apply(Sizes);
BENCHMARK(ReadThree)->Apply(Sizes);
BENCHMARK(Memcpy)->Apply(Sizes);
BENCHMARK(SampleGather)->Apply(Sizes);

}  // namespace
}  // namespace plumbline
