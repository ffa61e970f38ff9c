// Measures the store alone: writing 50 million samples, its cost on the judging thread, bytes per
// sample on disk, and the page's query: 1,000 ranks x the last 1,000 steps of one series.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "server/store/store.h"
#include "tests/server/store/support.h"
#include "tests/support/files.h"

namespace plumbline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kRanks = 1000;
constexpr size_t kSeries = 50;
constexpr int64_t kSteps = 1000;
constexpr double kSamples = static_cast<double>(kRanks) * kSeries * kSteps;

double Milliseconds(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

// Generates curves like those of trainers: a slow fall, noise of a few per cent, and the precision
// of float32 (`single`) or of a double.
class Curves {
 public:
  explicit Curves(bool single) : single_(single) {
    for (double& n : noise_) n = std::normal_distribution<double>(0, 0.03)(random_);
  }
  void Fill(int64_t step, std::vector<double>* values) {
    for (size_t i = 0; i < values->size(); ++i) {
      const double curve = 1 + 2 / std::sqrt(1.0 + static_cast<double>(step));
      const double value = curve * static_cast<double>(1 + i % kSeries) *
                           (1 + noise_[(next_++ * 7919) % noise_.size()]);
      (*values)[i] = single_ ? static_cast<double>(static_cast<float>(value)) : value;
    }
  }

 private:
  const bool single_;
  std::mt19937_64 random_{1};
  std::vector<double> noise_ = std::vector<double>(1 << 16);
  size_t next_ = 0;
};

struct Filled {
  explicit Filled(bool single) {
    server::StoreOptions options;
    options.path = folder.File("store.sqlite");
    options.origin = {"bench", ~uint64_t{0} >> 1};
    auto opened = server::Store::Open(options);
    if (!opened.ok()) return;
    store = std::move(*opened);
    std::vector<std::string> names;
    for (size_t s = 0; s < kSeries; ++s) names.push_back("layers." + std::to_string(s) + "/grad");
    const auto columns = test::ColumnsOf(names);
    test::FedRows rows;
    for (uint32_t r = 0; r < kRanks; ++r) rows.ranks.push_back(r);
    rows.values.resize(kRanks * kSeries);
    Curves curves(single);
    const auto start = Clock::now();
    for (int64_t step = 0; step < kSteps; ++step) {
      curves.Fill(step, &rows.values);
      const auto before = Clock::now();
      store->Judged(static_cast<uint64_t>(step) + 1);
      test::Feed(store.get(), static_cast<uint64_t>(step) + 1, "r", step, columns, rows);
      store->EndEntry("r");
      const auto took = Clock::now() - before;
      judging += took;
      longest = std::max(longest, took);
    }
    const uint64_t ticket = store->Flush();
    written = store->WaitFlushed(ticket, std::chrono::minutes(10));
    all = Clock::now() - start;
  }

  const test::TempFolder folder;
  std::unique_ptr<server::Store> store;
  Clock::duration judging{}, longest{}, all{};
  bool written = false;
};

void Fill(benchmark::State& state) {
  for (auto _ : state) {
    Filled filled(state.range(0) == 1);
    if (!filled.written) {
      state.SkipWithError("the store was not written");
      return;
    }
    const auto size = std::filesystem::file_size(filled.folder.File("store.sqlite"));
    state.counters["judge_ns_per_sample"] = Milliseconds(filled.judging) * 1e6 / kSamples;
    state.counters["longest_pause_ms"] = Milliseconds(filled.longest);
    state.counters["Msamples_per_s"] = kSamples / Milliseconds(filled.all) / 1e3;
    state.counters["bytes_per_sample"] =
        static_cast<double>(filled.store->Info().bytes()) / kSamples;
    state.counters["file_MB"] = static_cast<double>(size) / 1e6;
  }
}
BENCHMARK(Fill)->ArgName("single")->Arg(1)->Arg(0)->Iterations(1)->Unit(benchmark::kMillisecond);

void QueryLastThousand(benchmark::State& state) {
  const Filled filled(true);
  v1::QuerySeriesRequest request;
  request.set_run("r");
  request.set_series("layers.7/grad");
  request.set_last_steps(1000);
  request.set_max_cells(1'000'000);
  request.set_over_ranks(state.range(0) == 1);
  std::vector<double> times;
  int cells = 0;
  for (auto _ : state) {
    v1::QuerySeriesResponse response;
    if (!filled.store->QuerySeries(request, &response).ok()) state.SkipWithError("no answer");
    cells = response.series(0).mean_size();
    times.push_back(static_cast<double>(response.server_ns()) / 1e6);
  }
  std::sort(times.begin(), times.end());
  state.counters["median_ms"] = times[times.size() / 2];
  state.counters["worst_ms"] = times.back();
  state.counters["cells"] = cells;
}
BENCHMARK(QueryLastThousand)
    ->ArgName("over_ranks")
    ->Arg(0)
    ->Arg(1)
    ->Iterations(30)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumbline
