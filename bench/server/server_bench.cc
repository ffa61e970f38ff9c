// Measures plumbd over loopback: samples per second through one stream until they are judged, and
// the time from sending a step to seeing its finding in a watch.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "audit/live/client.h"
#include "tests/server/support.h"

namespace plumbline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSeries = 8;
constexpr int kStepsABatch = 64;  // 512 samples, as an agent fills its batches
constexpr int kBatches = 2000;

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

v1::Batch ScalarBatch(const v1::Source& source, int64_t first_step) {
  v1::Batch batch = test::BatchOf(source);
  for (int64_t step = first_step; step < first_step + kStepsABatch; ++step) {
    for (int series = 0; series < kSeries; ++series) {
      test::AddScalar(&batch, "series." + std::to_string(series), step,
                      static_cast<double>(step) * 0.5);
    }
  }
  test::AddProgress(&batch, first_step + kStepsABatch - 1);
  return batch;
}

// Sent, acknowledged and judged: the clock stops when the last step is closed.
void ScalarsThroughOneStream(benchmark::State& state) {
  test::Plumbd server({"--log-level", "error"});
  uint64_t stream_id = 1;
  uint64_t samples = 0;
  double bytes = 0;
  double cpu = 0;
  for (auto _ : state) {
    const std::string run = "run-" + std::to_string(stream_id);
    const v1::Source source = test::SourceOf(run);
    std::vector<v1::Batch> batches;
    for (int b = 0; b < kBatches; ++b) batches.push_back(ScalarBatch(source, b * kStepsABatch));
    bytes = static_cast<double>(batches.back().ByteSizeLong()) / (kSeries * kStepsABatch);
    test::AgentStream agent(server, stream_id++, {source});
    agent.Welcomed();
    const double cpu_before = server.process().cpu_seconds();
    const auto start = Clock::now();
    for (int b = 0; b < kBatches; ++b) {
      agent.Send(std::move(batches[static_cast<size_t>(b)]), static_cast<uint64_t>(b) + 1);
    }
    agent.Acknowledged(kBatches);
    const auto all_judged = [&] {
      const auto info = server.Run(run);
      return info && info->closed_step() >= kBatches * kStepsABatch - 1;
    };
    while (!all_judged()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    state.SetIterationTime(Seconds(Clock::now() - start));
    cpu += server.process().cpu_seconds() - cpu_before;
    samples += static_cast<uint64_t>(kBatches) * kSeries * kStepsABatch;
    if (server.Run(run)->evidence() != static_cast<uint64_t>(kBatches) * kSeries * kStepsABatch) {
      state.SkipWithError("samples were lost");
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(samples));
  state.counters["samples_a_server_cpu_second"] = static_cast<double>(samples) / cpu;
  state.counters["wire_bytes_a_sample"] = bytes;
}
BENCHMARK(ScalarsThroughOneStream)->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(3);

// Sends one leaking step at a time, each of a new layer, so that each changes the incident.
void StepToWatch(benchmark::State& state) {
  test::Plumbd server({"--log-level", "error"});
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t opened = 0;
  bool caught_up = false;
  audit::Client client(server.address());
  std::thread watcher([&] {
    (void)client.Watch({}, [&](const v1::IncidentEvent& event) {
      std::lock_guard lock(mutex);
      caught_up |= event.kind() == v1::IncidentEvent::KIND_CAUGHT_UP;
      opened += event.incident().finding().rule() == "causality/moe-future-leak";
      changed.notify_all();
      return true;
    });
  });
  const v1::Source source = test::SourceOf("latency");
  test::AgentStream agent(server, 1, {source});
  agent.Welcomed();
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return caught_up; });
  }
  std::vector<double> seconds;
  uint64_t sequence = 0;
  for (auto _ : state) {
    const v1::Batch batch = test::LeakingStep(source, static_cast<int64_t>(sequence),
                                              "layers." + std::to_string(sequence));
    const auto start = Clock::now();
    agent.Send(batch, ++sequence);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return opened == sequence; });
    seconds.push_back(Seconds(Clock::now() - start));
    state.SetIterationTime(seconds.back());
  }
  std::sort(seconds.begin(), seconds.end());
  const auto quantile = [&](double q) {
    return seconds[static_cast<size_t>(q * static_cast<double>(seconds.size() - 1))] * 1e3;
  };
  state.counters["p50_ms"] = quantile(0.5);
  state.counters["p99_ms"] = quantile(0.99);
  state.counters["max_ms"] = seconds.back() * 1e3;
  client.Cancel();
  watcher.join();
}
BENCHMARK(StepToWatch)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(2000);

}  // namespace
}  // namespace plumbline
