// Measures the size of an engine's checkpoint, and how long the judging thread is blocked for it:
// 64 ranks that each observe 50 sites, after 256 judged steps, with 0 or 64 open steps.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "rules/engine/engine.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

constexpr uint32_t kRanks = 64;
constexpr int kTensors = 40, kLayers = 8;  // plus two scalars
constexpr int64_t kJudged = 256;
constexpr uint32_t kExperts = 64;

void FillTensor(uint64_t seed, v1::Evidence& e) {
  v1::TensorState& state = *e.mutable_tensor();
  state.set_dtype(v1::DTYPE_BF16);
  state.set_role("gradient");
  state.add_shape(4096);
  state.add_shape(4096);
  v1::TensorSummary& s = *state.mutable_summary();
  s.set_count(1 << 24);
  s.set_min(-0.5);
  s.set_max(0.5);
  s.set_amax(0.5);
  s.set_sum(1e-3 * static_cast<double>(seed % 97));
  s.set_sum_squares(3.5);
  s.set_l1(1e4);
  s.set_first_exponent(-30);
  for (uint64_t bin = 0; bin < 28; ++bin) s.add_exponents((seed + bin) % 1000000);
  s.set_digest_low(seed * 0x9e3779b97f4a7c15);
  s.set_digest_high(seed);
}

void FillRouting(uint64_t seed, v1::Evidence& e) {
  v1::Routing& routing = *e.mutable_routing();
  routing.mutable_config()->set_experts(kExperts);
  routing.mutable_config()->set_top_k(2);
  routing.mutable_config()->set_mode("train");
  v1::RoutingSummary& s = *routing.mutable_summary();
  s.set_tokens(4096);
  s.set_choices(2 * 4096);
  for (uint32_t expert = 0; expert < kExperts; ++expert)
    s.add_load(128 + static_cast<uint32_t>((seed + expert) % 2 == 0 ? 1 : -1));
  s.set_entropy_mean(0.9);
  s.set_margin_mean(0.1);
}

v1::Batch StepOf(uint32_t rank, int64_t step) {
  v1::Batch batch = test::BatchOf(test::SourceOf("a-run-of-some-name", rank, kRanks));
  v1::Source& source = *batch.mutable_sources(0);
  source.set_host("node-17.cluster.example");
  source.set_pid(12345);
  const auto add = [&](const std::string& layer, const char* op) -> v1::Evidence& {
    v1::Evidence& e = *batch.add_evidence();
    e.mutable_site()->set_layer(layer);
    e.mutable_site()->set_op(op);
    e.set_step(step);
    return e;
  };
  const uint64_t seed = static_cast<uint64_t>(step) * kRanks + rank;
  for (int i = 0; i < kTensors; ++i)
    FillTensor(seed + static_cast<uint64_t>(i),
               add("model.layers." + std::to_string(i) + ".mlp.down_proj.weight", "grad"));
  for (int i = 0; i < kLayers; ++i)
    FillRouting(seed, add("model.layers." + std::to_string(i), "router"));
  add("", "loss").mutable_scalar()->set_value(2.5);
  add("", "grad_norm").mutable_scalar()->set_value(0.5);
  test::AddProgress(&batch, step);
  return batch;
}

std::unique_ptr<Engine> Make() {
  return *Engine::Create({.window_steps = 1000}, [](const v1::Verdict&) {});
}

// Returns an engine in which one rank has reported nothing of the last `open` steps.
std::unique_ptr<Engine> Filled(int64_t open) {
  auto engine = Make();
  for (int64_t step = 0; step < kJudged + open; ++step) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      if (step >= kJudged && rank == kRanks - 1) continue;
      if (!engine->Add(StepOf(rank, step)).ok()) std::abort();
    }
  }
  if (engine->closed_step("a-run-of-some-name") != kJudged - 1) std::abort();
  return engine;
}

void Count(benchmark::State& state, const std::string& bytes) {
  state.counters["bytes"] = static_cast<double>(bytes.size());
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes.size()));
}

void Checkpoint(benchmark::State& state) {
  const auto engine = Filled(state.range(0));
  std::string bytes;
  for (auto _ : state) bytes = engine->Checkpoint();
  Count(state, bytes);
}

void Restore(benchmark::State& state) {
  const std::string bytes = Filled(state.range(0))->Checkpoint();
  for (auto _ : state) {
    state.PauseTiming();
    auto engine = Make();
    state.ResumeTiming();
    if (!engine->Restore(bytes).ok()) std::abort();
    state.PauseTiming();
    engine.reset();
    state.ResumeTiming();
  }
  Count(state, bytes);
}

BENCHMARK(Checkpoint)->ArgName("open")->Arg(0)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK(Restore)->ArgName("open")->Arg(0)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumbline::rules
