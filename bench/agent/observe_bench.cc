// Measures the cost of an observation of a tensor, a reduction or an update for its caller: not
// due, and due by size. Tensors above probes::kCopyBytes are measured within the call, smaller ones
// are copied. PLUMBLINE_AGENT_LIBRARY selects the agent.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/agent/recorded_run.h"
#include "plumbline/agent.h"

namespace {

// Calls `observe` 16 times in each step at which the site is due. Step ends and flushes are not
// timed.
template <typename Observe>
void EachDueStep(benchmark::State& state, plumbline::Run& run, const plumbline::Site& site,
                 Observe observe) {
  int64_t step = 0, calls = 0, kept = 0;
  run.StepBegin(step);
  for (auto _ : state) {
    kept += observe() == PLUMBLINE_OK;
    if (++calls % 16 != 0) continue;
    state.PauseTiming();
    run.StepEnd();
    run.Flush(5000);
    step = std::max(step + 1, static_cast<int64_t>(site.handle()->next_due));
    run.StepBegin(step);
    state.ResumeTiming();
  }
  state.counters["kept"] = static_cast<double>(kept) / static_cast<double>(calls);
}

void TensorNotDue(benchmark::State& state) {
  plumbline::Run run = Open(1u << 30);
  const plumbline::Site site = run.TensorSite("layers.3.w", "weight");
  const std::vector<float> w(1024, 0.5f);
  {
    plumbline::Step step(run, 0);
    site.ObserveTensor(plumbline::Tensor(w.data(), {32, 32}));  // loads the agent
  }
  plumbline::Step step(run, 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        site.ObserveTensor(plumbline::Tensor(w.data(), {32, 32}), {.role = "weight"}));
  }
}
BENCHMARK(TensorNotDue);

void UpdateNotDue(benchmark::State& state) {
  plumbline::Run run = Open(1u << 30);
  const plumbline::Site site = run.UpdateSite("layers.3.w");
  const std::vector<float> w(1024, 0.5f);
  const auto observe = [&] {
    const plumbline::Tensor t(w.data(), {32, 32});
    return site.ObserveUpdate({.before = t, .after = t, .intended = t}, {.optimizer = "sgd"});
  };
  {
    plumbline::Step step(run, 0);
    observe();
  }
  plumbline::Step step(run, 1);
  for (auto _ : state) benchmark::DoNotOptimize(observe());
}
BENCHMARK(UpdateNotDue);

void ReductionNotDue(benchmark::State& state) {
  plumbline::Run run = Open(1u << 30);
  const plumbline::Site site = run.ReductionSite("gradients");
  const std::vector<float> g(1024, 0.5f);
  {
    plumbline::Step step(run, 0);
    plumbline::SampledReduction(site, plumbline::Tensor(g.data(), {1024})).Done();
  }
  plumbline::Step step(run, 1);
  for (auto _ : state) {
    plumbline::SampledReduction taken(site, plumbline::Tensor(g.data(), {1024}));
    benchmark::DoNotOptimize(taken.Done());
  }
}
BENCHMARK(ReductionNotDue);

// state.range: number of f32 elements.
void TensorDue(benchmark::State& state) {
  plumbline::Run run = Open(1);
  const plumbline::Site site = run.TensorSite("layers.3.w", "weight");
  const int64_t n = state.range(0);
  std::vector<float> w(static_cast<size_t>(n));
  for (size_t i = 0; i < w.size(); ++i) w[i] = 1e-3f * static_cast<float>(i % 997) - 0.5f;
  EachDueStep(state, run, site, [&] {
    return site.ObserveTensor(plumbline::Tensor(w.data(), {n}), {.role = "weight"});
  });
  state.SetBytesProcessed(state.iterations() * n * 4);
}
// Enough iterations that the agent's ring was filled, and its pages touched, many times.
BENCHMARK(TensorDue)->Arg(16)->Arg(1 << 10)->Arg(1 << 12)->Iterations(1 << 14);
BENCHMARK(TensorDue)->Arg(1 << 14)->Arg(1 << 16)->Arg(1 << 18)->Arg(1 << 20)->Iterations(1 << 10);

void UpdateDue(benchmark::State& state) {
  plumbline::Run run = Open(1);
  const plumbline::Site site = run.UpdateSite("layers.3.w");
  const int64_t n = state.range(0);
  const std::vector<float> w(static_cast<size_t>(n), 0.5f), d(static_cast<size_t>(n), 1e-5f);
  EachDueStep(state, run, site, [&] {
    const plumbline::Tensor t(w.data(), {n});
    return site.ObserveUpdate({.before = t, .after = t, .intended = {d.data(), {n}}},
                              {.optimizer = "sgd"});
  });
  state.SetBytesProcessed(state.iterations() * n * 12);
}
BENCHMARK(UpdateDue)->Arg(16)->Arg(1 << 12)->Arg(1 << 16)->Arg(1 << 20)->Iterations(4096);

// Observes an in-place collective of 2^22 elements, sampled before and after it. The opening steps
// keep elements, later ones mostly the call alone.
void ReductionDue(benchmark::State& state) {
  setenv("PLUMBLINE_TRAFFIC_BYTES", state.range(0) != 0 ? "1000000000" : "1", 1);
  plumbline::Run run = Open(1);
  const plumbline::Site site = run.ReductionSite("gradients");
  const std::vector<float> g(1 << 22, 0.5f);
  EachDueStep(state, run, site, [&] {
    plumbline::SampledReduction taken(site, plumbline::Tensor(g.data(), {1 << 22}));
    return taken.Done({.group_size = 8, .group_rank = 1});
  });
  unsetenv("PLUMBLINE_TRAFFIC_BYTES");
  state.SetLabel(state.range(0) != 0 ? "each step keeps elements" : "nearly none does");
}
BENCHMARK(ReductionDue)->Arg(1)->Arg(0)->Iterations(1024);

}  // namespace
