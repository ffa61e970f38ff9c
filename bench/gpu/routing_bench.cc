// Measures the routing measurement of router calls on a device: bytes of scores and choices per
// second. Compare with Copy and ReadOnce of stats_bench.cu.
#include <numeric>
#include <vector>

#include "bench/gpu/device_memory.h"
#include "kernels/routing/device.h"

namespace plumbline::gpu {
namespace {

constexpr int kTopK = 8;

// Returns kTopK different experts for each row.
std::vector<int32_t> Choices(int64_t tokens, int experts) {
  std::vector<int32_t> out(static_cast<size_t>(tokens * kTopK));
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t row = i / kTopK, choice = i % kTopK;
    out[i] = static_cast<int32_t>((row * 7 + choice) % static_cast<size_t>(experts));
  }
  return out;
}

void Routing(benchmark::State& state, DType t) {
  Must(static_cast<cudaError_t>(LoadRoutingKernels()), "kernels");
  const int64_t tokens = state.range(0);
  const auto experts = static_cast<int>(state.range(1));
  const int64_t bytes = tokens * experts * static_cast<int64_t>(DTypeSize(t));
  const DeviceMemory scores(static_cast<size_t>(bytes));
  FillNormal(scores.data(), t, tokens * experts, 1, 1);
  const std::vector<int32_t> choices = Choices(tokens, experts);
  const DeviceMemory chosen(choices.size() * sizeof(int32_t));
  Must(cudaMemcpy(chosen.data(), choices.data(), chosen.bytes(), cudaMemcpyHostToDevice), "copy");

  RoutingInput in;
  in.scores = TensorView::Dense(scores.data(), t, tokens, experts);
  in.topk_indices = TensorView::Dense(chosen.data(), DType::kI32, tokens, kTopK);
  in.scores.device = in.topk_indices.device = 0;
  in.top_k = kTopK;
  in.score_function = ScoreFunction::kSoftmax;
  RoutingPlan plan;
  if (!PlanRouting(in, &plan).ok()) return state.SkipWithError("refused");
  const DeviceMemory workspace(RoutingWorkspaceBytes(tokens, experts));
  const PinnedMemory raw(sizeof(RoutingRaw));
  const auto moved = static_cast<int64_t>(scores.bytes() + chosen.bytes());
  TimeLaunches(state, moved, [&](cudaStream_t stream) {
    return LaunchRouting(plan, Processors(), workspace.data(), static_cast<RoutingRaw*>(raw.data()),
                         stream);
  });
  state.counters["tokens"] = benchmark::Counter(static_cast<double>(tokens),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void Sizes(benchmark::internal::Benchmark* b) {
  b->Args({8 << 10, 64})->Args({64 << 10, 256})->Args({1 << 20, 128})->UseManualTime();
}
BENCHMARK_CAPTURE(Routing, f32, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(Routing, bf16, DType::kBF16)->Apply(Sizes);

}  // namespace
}  // namespace plumbline::gpu
