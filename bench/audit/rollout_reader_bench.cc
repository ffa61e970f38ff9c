// Measures the reading of rollout records from a file in the page cache, layer by layer: lines,
// JSON into columns, evidence. Peers: a memchr for newlines, and nlohmann's parser into a tree.
// Bytes are of the file.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "audit/readers/input/line_reader.h"
#include "audit/readers/rollout/jsonl.h"
#include "audit/readers/rollout/parser.h"
#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

constexpr size_t kTokens = 2000;
constexpr size_t kFileBytes = 64u << 20;

// Returns one seeded body per call; `digits` 17: doubles in full.
std::string Body(std::mt19937& random, int digits) {
  std::exponential_distribution<double> surprise(1.0);
  char number[40];
  const auto list = [&](const char* name, const auto& next) {
    std::string text = std::string(", \"") + name + "\": [";
    for (size_t i = 0; i < kTokens; ++i) text += (i == 0 ? "" : ", ") + std::string(next(i));
    return text + "]";
  };
  const auto whole = [&](unsigned value) {
    std::snprintf(number, sizeof number, "%u", value);
    return number;
  };
  const auto logprob = [&](size_t) {
    std::snprintf(number, sizeof number, digits == 17 ? "%.*g" : "%.*f", digits, -surprise(random));
    return number;
  };
  return list("tokens", [&](size_t) { return whole(random() % 150000); }) +
         list("loss_mask", [&](size_t i) { return whole(i >= kTokens / 8); }) +
         list("rollout_logprobs", logprob) + list("train_logprobs", logprob) +
         list("entropy", logprob) + list("weight_versions", [&](size_t) { return whole(3); }) +
         ", \"train_version\": 4, \"worker\": \"engine-1\"}\n";
}

// A file that is removed when the program ends.
class File {
 public:
  explicit File(int digits) {
    std::ofstream file(path_, std::ios::binary);
    std::mt19937 random(1);
    std::string bodies[16];
    for (std::string& body : bodies) body = Body(random, digits);
    for (size_t i = 0; size_ < kFileBytes; ++i) {
      const std::string line = "{\"step\": " + std::to_string(i / 64) + ", \"sequence_id\": \"s" +
                               std::to_string(i) + "\"" + bodies[i % 16];
      if (!(file << line)) std::abort();
      size_ += line.size();
    }
  }
  const std::string& path() const { return path_; }
  size_t size() const { return size_; }

  static const File& Of(int digits) {
    static const File kRounded(6), kFull(17);
    return digits == 17 ? kFull : kRounded;
  }

 private:
  const test::TempFolder folder_;
  const std::string path_ = folder_.File("rollouts.jsonl");
  size_t size_ = 0;
};

LineReader OpenLines(const File& file) {
  return LineReader(ByteStream::Open(*InputFile::Open(file.path())));
}

void Lines(benchmark::State& state) {
  const File& file = File::Of(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    LineReader lines = OpenLines(file);
    for (Line line; lines.Next(&line);) benchmark::DoNotOptimize(line.text.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(file.size()));
}

void Columns(benchmark::State& state) {
  const File& file = File::Of(static_cast<int>(state.range(0)));
  RolloutParser parser(NativeColumns());
  RolloutColumns columns;
  LineProblem problem;
  for (auto _ : state) {
    LineReader lines = OpenLines(file);
    for (Line line; lines.Next(&line);) {
      if (!parser.Parse(line.text, &columns, &problem)) state.SkipWithError("refused");
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(file.size()));
}

void Evidence(benchmark::State& state) {
  const File& file = File::Of(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    InputReport report;
    report.path = file.path();
    for (const auto& source : NativeRollouts().Open({&report})) {
      for (v1::Batch batch; source->Next(&batch);) benchmark::DoNotOptimize(batch.evidence_size());
    }
    if (report.failed()) state.SkipWithError("refused");
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(file.size()));
}

void NlohmannTree(benchmark::State& state) {
  const File& file = File::Of(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    LineReader lines = OpenLines(file);
    for (Line line; lines.Next(&line);)
      benchmark::DoNotOptimize(nlohmann::json::parse(line.text, nullptr, false).size());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(file.size()));
}

BENCHMARK(Lines)->Arg(6)->Arg(17)->ArgName("digits")->Unit(benchmark::kMillisecond);
BENCHMARK(Columns)->Arg(6)->Arg(17)->ArgName("digits")->Unit(benchmark::kMillisecond);
BENCHMARK(Evidence)->Arg(6)->Arg(17)->ArgName("digits")->Unit(benchmark::kMillisecond);
BENCHMARK(NlohmannTree)->Arg(6)->Arg(17)->ArgName("digits")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumbline::audit
