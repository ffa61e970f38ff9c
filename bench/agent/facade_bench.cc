// Measures the cost of one call for the trainer: not due, due, disabled. PLUMBLINE_AGENT_LIBRARY
// selects the agent; the stub of the tests measures the façade alone.
//
// Host side only: [T,E] is small on purpose, so that a due call is the façade, the hand-over and
// the agent's bookkeeping, and hardly the measurement.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "bench/agent/recorded_run.h"
#include "plumbline/agent.h"

namespace {

struct Call {
  float values[8] = {0.1f, 0.2f, 0.3f, 0.4f, 0.4f, 0.3f, 0.2f, 0.1f};
  int64_t chosen[2] = {3, 0};
  int64_t score_shape[2] = {2, 4};
  int64_t choice_shape[2] = {2, 1};
  DLTensor scores{};
  DLTensor indices{};
  plumbline_routing_t routing = PLUMBLINE_ROUTING_INIT;

  Call() {
    Fill(&scores, values, {PLUMBLINE_DL_FLOAT, 32, 1}, score_shape);
    Fill(&indices, chosen, {PLUMBLINE_DL_INT, 64, 1}, choice_shape);
    routing.scores = &scores;
    routing.scores_are_logits = 1;
    routing.topk_indices = &indices;
    routing.top_k = 1;
  }

  static void Fill(DLTensor* t, void* data, DLDataType dtype, int64_t* shape) {
    t->data = data;
    t->device.device_type = static_cast<decltype(t->device.device_type)>(PLUMBLINE_DL_CPU);
    t->ndim = 2;
    t->dtype = dtype;
    t->shape = shape;
  }
};

void NotDue(benchmark::State& state) {
  plumbline::Run run = Open(1u << 30);
  const plumbline::Site site = run.RoutingSite("layers.3");
  Call call;
  {
    plumbline::Step step(run, 0);
    site.ObserveRouting(call.routing);  // loads the agent
  }
  plumbline::Step step(run, 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(site.ObserveRouting(call.routing));
  }
}
BENCHMARK(NotDue);

void NotDueByTheCall(benchmark::State& state) {
  plumbline::Run run = Open(1u << 30);
  const plumbline::Site site = run.RoutingSite("layers.3");
  Call call;
  {
    plumbline::Step step(run, 0);
    site.ObserveRouting(call.routing);
  }
  plumbline::Step step(run, 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(plumbline_observe_routing(site.handle(), &call.routing));
  }
}
BENCHMARK(NotDueByTheCall);

// Begins a new step for every 16 calls, as 16 layers would make: the next step that is due by the
// agent's cadence. Steps are not timed.
void Due(benchmark::State& state) {
  plumbline::Run run = Open(1);
  const plumbline::Site site = run.RoutingSite("layers.3");
  Call call;
  int64_t step = 0;
  int64_t calls = 0;
  int64_t kept = 0;
  run.StepBegin(step);
  for (auto _ : state) {
    kept += site.ObserveRouting(call.routing) == PLUMBLINE_OK;
    if (++calls % 16 == 0) {
      state.PauseTiming();
      run.StepEnd();
      if (calls % 256 == 0) run.Flush(1000);
      step = std::max(step + 1, static_cast<int64_t>(site.handle()->next_due));
      run.StepBegin(step);
      state.ResumeTiming();
    }
  }
  state.counters["kept"] = static_cast<double>(kept) / static_cast<double>(calls);
}
BENCHMARK(Due)->Iterations(1 << 16);

void Scalar(benchmark::State& state) {
  plumbline::Run run = Open(1);
  int64_t step = 0;
  int64_t calls = 0;
  int64_t kept = 0;
  run.StepBegin(step);
  for (auto _ : state) {
    kept += run.Scalar("loss", 2.3) == PLUMBLINE_OK;
    if (++calls % 64 == 0) {
      state.PauseTiming();
      run.StepEnd();
      if (calls % 1024 == 0) run.Flush(1000);
      run.StepBegin(++step);
      state.ResumeTiming();
    }
  }
  state.counters["kept"] = static_cast<double>(kept) / static_cast<double>(calls);
}
BENCHMARK(Scalar)->Iterations(1 << 16);

void StepBeginAndEnd(benchmark::State& state) {
  plumbline::Run run = Open(1);
  int64_t step = 0;
  for (auto _ : state) {
    run.StepBegin(step++);
    run.StepEnd();
  }
}
BENCHMARK(StepBeginAndEnd)->Iterations(1 << 12);

void Disabled(benchmark::State& state) {
  setenv("PLUMBLINE_DISABLE", "1", 1);
  plumbline::Run run = Open(1);
  unsetenv("PLUMBLINE_DISABLE");
  const plumbline::Site site = run.RoutingSite("layers.3");
  Call call;
  plumbline::Step step(run, 0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(site.ObserveRouting(call.routing));
  }
}
BENCHMARK(Disabled);

}  // namespace
