// Measures the CPU reference of the routing measurement, in bytes of scores per second. Peer: a
// memcpy of them.
//   bench_routing --benchmark_min_time=0.5
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/routing/routing.h"

namespace plumbline {
namespace {

std::vector<unsigned char> Scores(DType t, int64_t elements) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  // A few MiB of values, repeated: drawing 64 Mi of them would take longer than the measurement.
  std::vector<float> pool(1 << 20);
  for (float& v : pool) v = normal(random);
  std::vector<unsigned char> out(static_cast<size_t>(elements) * DTypeSize(t));
  for (int64_t i = 0; i < elements; ++i) {
    const float v = pool[static_cast<size_t>(i) % pool.size()];
    const uint16_t code = FloatToBF16(v);
    const bool wide = t == DType::kF32;
    std::memcpy(out.data() + static_cast<size_t>(i) * DTypeSize(t),
                wide ? static_cast<const void*>(&v) : &code, DTypeSize(t));
  }
  return out;
}

void Measure(benchmark::State& state, DType t, ScoreFunction function, bool recorded) {
  const int64_t tokens = state.range(0);
  const int64_t experts = state.range(1);
  const auto scores = Scores(t, tokens * experts);
  RoutingInput in;
  in.scores = TensorView::Dense(scores.data(), t, tokens, experts);
  in.top_k = experts > 8 ? 8 : 2;
  in.score_function = function;
  std::vector<int32_t> chosen(static_cast<size_t>(tokens * in.top_k));
  for (size_t i = 0; i < chosen.size(); ++i) {
    chosen[i] = static_cast<int32_t>(i % static_cast<size_t>(experts));
  }
  if (recorded) {
    in.topk_indices = TensorView::Dense(chosen.data(), DType::kI32, tokens, in.top_k);
  }
  RoutingStats stats;
  for (auto _ : state) {
    if (!SummariseRouting(in, &stats).ok()) state.SkipWithError("refused");
    benchmark::DoNotOptimize(stats.tied);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(scores.size()));
  state.SetItemsProcessed(state.iterations() * tokens);
}

void RoutingF32(benchmark::State& state) {
  Measure(state, DType::kF32, ScoreFunction::kSoftmax, true);
}
void RoutingBF16(benchmark::State& state) {
  Measure(state, DType::kBF16, ScoreFunction::kSoftmax, true);
}
void RoutingF32Sigmoid(benchmark::State& state) {
  Measure(state, DType::kF32, ScoreFunction::kSigmoid, true);
}

void Memcpy(benchmark::State& state) {
  const size_t size = static_cast<size_t>(state.range(0) * state.range(1) * 4);
  const std::vector<unsigned char> from(size, 1);
  std::vector<unsigned char> to(size);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), size);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(size));
}

void Sizes(benchmark::internal::Benchmark* b) {
  b->Args({4 << 10, 8})->Args({64 << 10, 64})->Args({1 << 20, 64})->Unit(benchmark::kMillisecond);
}
BENCHMARK(RoutingF32)->Apply(Sizes);
BENCHMARK(RoutingBF16)->Apply(Sizes);
BENCHMARK(RoutingF32Sigmoid)->Args({64 << 10, 64})->Unit(benchmark::kMillisecond);
BENCHMARK(Memcpy)->Apply(Sizes);

}  // namespace
}  // namespace plumbline
