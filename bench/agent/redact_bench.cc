// Measures the cost of redaction for the drain thread, per item: a router call's sample and a
// rollout's sequence.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>

#include "transport/redact.h"

namespace plumbline::transport {
namespace {

template <typename T>
void Fill(v1::Tensor* t, v1::DType dtype, int64_t n, T (*value)(int64_t)) {
  t->set_dtype(dtype);
  t->add_shape(n);
  for (int64_t i = 0; i < n; ++i) {
    const T x = value(i);
    t->mutable_data()->append(reinterpret_cast<const char*>(&x), sizeof x);
  }
}

void Run(benchmark::State& state, const v1::Evidence& raw) {
  const Redactor redactor("a key of the benchmark");
  for (auto _ : state) {
    state.PauseTiming();
    v1::Evidence e = raw;
    state.ResumeTiming();
    benchmark::DoNotOptimize(redactor.Redact(&e));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

// Rows of sequences of 512 tokens.
void RoutingSample(benchmark::State& state) {
  v1::Evidence e;
  v1::RoutingSample& s = *e.mutable_routing()->mutable_sample();
  Fill<int64_t>(s.mutable_sequence_id(), v1::DTYPE_I64, state.range(0),
                [](int64_t i) { return 7000 + i / 512; });
  *s.mutable_pool_id() = s.sequence_id();
  Run(state, e);
}
BENCHMARK(RoutingSample)->Arg(4096)->Arg(65536);

void RolloutSequence(benchmark::State& state) {
  v1::Evidence e;
  v1::LogprobsSequence& s = *e.mutable_logprobs()->add_sequences();
  s.set_id("123456");
  Fill<int32_t>(s.mutable_tokens(), v1::DTYPE_I32, state.range(0),
                [](int64_t i) { return static_cast<int32_t>(i * 7919 % 128000); });
  Run(state, e);
}
BENCHMARK(RolloutSequence)->Arg(4096)->Arg(65536);

}  // namespace
}  // namespace plumbline::transport

BENCHMARK_MAIN();
