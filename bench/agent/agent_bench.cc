// Measures ns per due observation and scalar on the caller's thread, the drain thread's share of
// it, the alternative of measuring on the caller's thread, scalars per second through one stream,
// and evidence bytes per rank-step.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "agent/core/run/record_sink.h"
#include "agent/core/run/run.h"
#include "base/clock.h"
#include "base/framed_log.h"
#include "probes/routing_probe.h"
#include "tests/support/files.h"
#include "tests/support/process.h"

namespace plumbline::agent {
namespace {

struct Router {
  Router(int64_t t, int64_t e, int64_t k) : scores(t * e), topk(t * k), s{t, e}, i{t, k} {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& x : scores) x = normal(random);
    for (int64_t row = 0; row < t; ++row) {
      for (int64_t j = 0; j < k; ++j) topk[row * k + j] = (row + j) % e;
    }
    scores_tensor.data = scores.data();
    scores_tensor.device = {kDLCPU, 0};
    scores_tensor.ndim = 2;
    scores_tensor.dtype = {PLUMBLINE_DL_FLOAT, 32, 1};
    scores_tensor.shape = s;
    topk_tensor = scores_tensor;
    topk_tensor.data = topk.data();
    topk_tensor.dtype = {PLUMBLINE_DL_INT, 64, 1};
    topk_tensor.shape = i;
    call.top_k = static_cast<uint32_t>(k);
    call.scores = &scores_tensor;
    call.scores_are_logits = 1;
    call.topk_indices = &topk_tensor;
  }
  std::vector<float> scores;
  std::vector<int64_t> topk;
  int64_t s[2], i[2];
  DLTensor scores_tensor{}, topk_tensor{};
  plumbline_routing_t call = PLUMBLINE_ROUTING_INIT;
};

std::unique_ptr<Run> OpenRecording(const std::string& dir) {
  AgentOptions options;
  options.run = "bench";
  options.record_dir = dir;
  options.budget = 1;  // a trainer that does nothing else
  auto run = Run::Open(options);
  if (!run.ok()) std::abort();
  return *std::move(run);
}

Site* Declare(Run* run, const char* layer, uint64_t* due) {
  plumbline_agent_site_t site{};
  site.kind = PLUMBLINE_KIND_ROUTING;
  site.layer = layer;
  site.op = "routing";
  site.next_due = due;
  void* made = nullptr;
  plumbline_error_t error;
  run->DeclareSite(site, &made, &error);
  return static_cast<Site*>(made);
}

double ThreadSeconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Makes one due call per iteration, on an unsampled step. The ring is emptied, untimed, between
// batches of calls, so that the time is the caller's alone. all_cpu_ns: both threads together.
void DueObservation(benchmark::State& state) {
  Router router(state.range(0), state.range(1), state.range(2));
  const test::TempFolder dir;
  auto run = OpenRecording(dir.path());
  uint64_t due = 0;
  Site* site = Declare(run.get(), "layers.0", &due);
  plumbline_error_t error;
  int64_t step = 1'000'001;
  run->StepBegin(step);
  const uint64_t per_flush = std::clamp<uint64_t>(
      (4u << 20) / (router.scores.size() * 4 + router.topk.size() * 8), 1, 20000);
  uint64_t since = 0, dropped = 0;
  const double cpu0 = ThreadSeconds(CLOCK_PROCESS_CPUTIME_ID);
  for (auto _ : state) {
    dropped += run->ObserveRouting(site, step, router.call, &error) != PLUMBLINE_OK;
    if (++since < per_flush) continue;
    state.PauseTiming();
    since = 0;
    run->StepEnd(step);
    run->Flush(60000, &error);
    step += 2;
    run->StepBegin(step);
    state.ResumeTiming();
  }
  run->Flush(60000, &error);
  const double cpu1 = ThreadSeconds(CLOCK_PROCESS_CPUTIME_ID);
  state.counters["all_cpu_ns"] = 1e9 * (cpu1 - cpu0) / static_cast<double>(state.iterations());
  state.counters["dropped"] = static_cast<double>(dropped);
  run->Close(60000, &error);
}
BENCHMARK(DueObservation)->Args({1, 8, 2})->Args({512, 8, 2})->Args({4096, 64, 8});

// Measures only the copy, and only the summary: the caller's cost if it measured in place.
void CopyIntoSlot(benchmark::State& state) {
  Router router(state.range(0), state.range(1), state.range(2));
  probes::RoutingCall call;
  call.input.scores =
      TensorView::Dense(router.scores.data(), DType::kF32, router.s[0], router.s[1]);
  call.input.topk_indices =
      TensorView::Dense(router.topk.data(), DType::kI64, router.i[0], router.i[1]);
  call.input.top_k = static_cast<int>(router.i[1]);
  std::vector<std::byte> slot(probes::SlotBytes(call));
  for (auto _ : state) {
    probes::StoreRoutingCall(call, slot.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * slot.size()));
}
BENCHMARK(CopyIntoSlot)->Args({512, 8, 2})->Args({4096, 64, 8});

void MeasureInPlace(benchmark::State& state) {
  Router router(state.range(0), state.range(1), state.range(2));
  probes::RoutingCall call;
  call.input.scores =
      TensorView::Dense(router.scores.data(), DType::kF32, router.s[0], router.s[1]);
  call.input.topk_indices =
      TensorView::Dense(router.topk.data(), DType::kI64, router.i[0], router.i[1]);
  call.input.top_k = static_cast<int>(router.i[1]);
  v1::Routing out;
  for (auto _ : state) {
    out.Clear();
    if (!probes::MeasureRouting(call, false, 0, &out).ok()) std::abort();
  }
}
BENCHMARK(MeasureInPlace)->Args({512, 8, 2})->Args({4096, 64, 8});

void ScalarCall(benchmark::State& state) {
  const test::TempFolder dir;
  auto run = OpenRecording(dir.path());
  plumbline_error_t error;
  run->StepBegin(0);
  uint64_t since = 0, dropped = 0;
  for (auto _ : state) {
    dropped += run->Scalar(0, "loss", 1.5) != PLUMBLINE_OK;
    if (++since < 50000) continue;
    state.PauseTiming();
    since = 0;
    run->Flush(60000, &error);
    state.ResumeTiming();
  }
  state.counters["dropped"] = static_cast<double>(dropped);
  run->Close(60000, &error);
}
BENCHMARK(ScalarCall);

// Sends scalars through ring, drain thread, stream and a server process until they are
// acknowledged. 100 series per step.
void ScalarsThroughOneStream(benchmark::State& state) {
  test::Process server({PLUMBLINE_BINARY_DIR "/bin/agent_bench_server"});
  AgentOptions options;
  options.run = "bench";
  options.server = server.FirstLine();
  options.budget = 1;
  auto opened = Run::Open(options);
  if (!opened.ok()) std::abort();
  Run& run = **opened;
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("series." + std::to_string(i));
  plumbline_error_t error;
  constexpr int64_t kSteps = 2000;
  uint64_t dropped = 0;
  int64_t step = 0;
  for (auto _ : state) {
    for (int64_t end = step + kSteps; step < end; ++step) {
      run.StepBegin(step);
      for (const std::string& name : names) {
        while (run.Scalar(step, name.c_str(), 1.5) != PLUMBLINE_OK) {
          ++dropped;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }
      run.StepEnd(step);
    }
    if (run.Flush(60000, &error) != PLUMBLINE_OK) state.SkipWithError(error.text);
  }
  state.SetItemsProcessed(state.iterations() * kSteps * 100);
  state.counters["ring_full"] = static_cast<double>(dropped);
  state.counters["wire_bytes_a_scalar"] =
      static_cast<double>(run.stream()->counters().bytes_sent.load()) /
      static_cast<double>(state.iterations() * kSteps * 100);
  run.Close(60000, &error);
}
BENCHMARK(ScalarsThroughOneStream)->UseRealTime()->Unit(benchmark::kMillisecond);

// Counts the bytes on the wire over 4096 steps of `layers` routers (T = 512) and two series.
void BytesARankStep(benchmark::State& state) {
  const int64_t layers = state.range(0);
  Router router(512, state.range(1), 2);
  constexpr int64_t kSteps = 4096;
  uint64_t raw = 0, file = 0, late_raw = 0;
  for (auto _ : state) {
    const test::TempFolder dir;
    auto run = OpenRecording(dir.path());
    std::vector<uint64_t> due(static_cast<size_t>(layers));
    std::vector<Site*> sites;
    for (int64_t l = 0; l < layers; ++l) {
      sites.push_back(Declare(run.get(), ("layers." + std::to_string(l)).c_str(), &due[l]));
    }
    plumbline_error_t error;
    for (int64_t step = 0; step < kSteps; ++step) {
      run->StepBegin(step);
      for (int64_t l = 0; l < layers; ++l) {
        if (static_cast<uint64_t>(step) < due[l]) continue;
        while (run->ObserveRouting(sites[l], step, router.call, &error) != PLUMBLINE_OK) {
          run->Flush(1000, &error);
        }
      }
      run->Scalar(step, "loss", 2.5);
      run->Scalar(step, "grad_norm", 1.5);
      run->StepEnd(step);
      if (step % 16 == 0) run->Flush(60000, &error);
    }
    run->Close(60000, &error);
    const std::string path = RecordPath(dir.path(), v1::ROLE_TRAINER, 0, 0);
    file = std::filesystem::file_size(path);
    auto reader = FramedLogReader::Open(path);
    FrameType type{};
    std::string payload;
    while ((*reader)->Next(&type, &payload) == FramedLogReader::Result::kFrame) {
      raw += payload.size();
      v1::Batch batch;
      if (type != FrameType::kBatch || !batch.ParseFromString(payload)) continue;
      // The second half, after the opening steps.
      if (batch.evidence_size() != 0 && batch.evidence(0).step() >= kSteps / 2) {
        late_raw += payload.size();
      }
    }
  }
  state.counters["wire_bytes_a_step"] = static_cast<double>(raw) / kSteps;
  state.counters["beyond_opening"] = static_cast<double>(late_raw) / (kSteps / 2);
  state.counters["record_bytes_a_step"] = static_cast<double>(file) / kSteps;
}
BENCHMARK(BytesARankStep)->Args({4, 8})->Args({24, 64})->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace plumbline::agent

BENCHMARK_MAIN();
