// Measures the reading of scalar logs from files in the page cache: only checksums, points into
// rows, and the whole audit. Bytes are of the file; items are points.
#include <benchmark/benchmark.h>
#include <zlib.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "audit/readers/input/block_reader.h"
#include "audit/readers/scalars/scalar_reader.h"
#include "audit/session/audit.h"
#include "base/crc32c.h"
#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

constexpr int64_t kEventSteps = 1000000, kWandbSteps = 1500000;
constexpr int kSeries = 10;

std::string Name(int series) {
  constexpr const char* kNames[] = {"train/loss", "lr", "grad_norm", "tokens", "memory/allocated"};
  return series < 5 ? kNames[series] : "layers/" + std::to_string(series) + "/norm";
}

double Value(int series, int64_t step) {
  const auto n = static_cast<double>(step);
  switch (series) {
    case 0:
      return 2 + 8 / std::sqrt(n + 1) + 0.01 * std::sin(n * 12.9898);
    case 1:
      return 1e-3;
    case 3:
      return n * 4096;
    default:
      return 1 + 0.1 * std::cos(n + series);
  }
}

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string Field(uint32_t field, const std::string& bytes) {
  return Varint(field << 3 | 2) + Varint(bytes.size()) + bytes;
}

template <typename Number>
std::string Raw(Number number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof number);
}

std::string Masked(const std::string& bytes) {
  const uint32_t crc = Crc32c(bytes.data(), bytes.size());
  return Raw(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

void WriteEvents(std::ofstream& out) {
  for (int64_t step = 0; step < kEventSteps; ++step) {
    for (int series = 0; series < kSeries; ++series) {
      const std::string value =
          Field(1, Name(series)) + '\x15' + Raw(static_cast<float>(Value(series, step)));
      const std::string data = '\x09' + Raw(1.7e9 + static_cast<double>(step)) + '\x10' +
                               Varint(static_cast<uint64_t>(step)) + Field(5, Field(1, value));
      const std::string length = Raw(uint64_t{data.size()});
      out << length << Masked(length) << data << Masked(data);
    }
  }
}

std::string Item(const std::string& name, double value) {
  char json[40];
  std::snprintf(json, sizeof json, "%.17g", value);
  return Field(1, Field(2, name) + Varint(16 << 3 | 2) + Varint(std::string(json).size()) + json);
}

// Returns the items that W&B adds to each row: time, seconds since the start, and the step again.
std::string OwnItems(int64_t step) {
  const double seconds = 0.731 * static_cast<double>(step);
  return Item("_timestamp", 1.7e9 + seconds) + Item("_runtime", seconds) +
         Item("_step", static_cast<double>(step));
}

void WriteWandbRows(std::ofstream& out, bool own) {
  size_t at = 7;
  out << ":W&B" << '\xe1' << '\xbe' << '\0';
  for (int64_t step = 0; step < kWandbSteps; ++step) {
    std::string row;
    for (int series = 0; series < kSeries; ++series) row += Item(Name(series), Value(series, step));
    if (own) row += OwnItems(step);
    std::string data = Field(2, row + Field(2, '\x08' + Varint(static_cast<uint64_t>(step))));
    for (bool first = true; first || !data.empty(); first = false) {
      size_t left = 32768 - at % 32768;
      if (left < 7) {
        out << std::string(left, '\0');
        at += left;
        left = 32768;
      }
      const std::string piece = data.substr(0, left - 7);
      data.erase(0, piece.size());
      const std::string typed =
          static_cast<char>(first ? (data.empty() ? 1 : 2) : (data.empty() ? 4 : 3)) + piece;
      const auto crc = static_cast<uint32_t>(
          crc32(0, reinterpret_cast<const Bytef*>(typed.data()), static_cast<uInt>(typed.size())));
      out << Raw(crc) << Raw(static_cast<uint16_t>(piece.size())) << typed;
      at += 6 + typed.size();
      if (data.empty()) break;
    }
  }
}

void WriteWandb(std::ofstream& out) { WriteWandbRows(out, true); }
void WriteBareWandb(std::ofstream& out) { WriteWandbRows(out, false); }

// A file that is removed when the program ends.
struct File {
  explicit File(const char* name, void (*write)(std::ofstream&)) : path(folder.File(name)) {
    std::ofstream out(path, std::ios::binary);
    write(out);
    size = static_cast<int64_t>(out.tellp());
    if (!out) std::abort();
  }
  const test::TempFolder folder;
  const std::string path;
  int64_t size = 0;
};

const File& Events() {
  static const File file("events.out.tfevents.1", WriteEvents);
  return file;
}
const File& Wandb() {
  static const File file("run-abc.wandb", WriteWandb);
  return file;
}

const File& BareWandb() {
  static const File file("run-bare.wandb", WriteBareWandb);
  return file;
}

void Count(benchmark::State& state, const File& file, int64_t points) {
  state.SetBytesProcessed(state.iterations() * file.size);
  state.SetItemsProcessed(state.iterations() * points);
}

void Read(benchmark::State& state, const Reader& reader, const File& file, int64_t points) {
  for (auto _ : state) {
    InputReport report;
    report.path = file.path;
    for (const auto& source : reader.Open({&report})) {
      for (v1::Batch batch; source->Next(&batch);) benchmark::DoNotOptimize(batch.series_size());
    }
    if (report.failed()) state.SkipWithError("refused");
  }
  Count(state, file, points);
}

void Whole(benchmark::State& state, const File& file, int64_t points) {
  for (auto _ : state) {
    AuditOptions options;
    options.paths = {file.path};
    const auto result = RunAudit(options, nullptr);
    if (!result.ok() || result->inputs_failed()) state.SkipWithError("refused");
  }
  Count(state, file, points);
}

// Measures checksums alone: a lower bound for any reader of checked files.
void Checksums(benchmark::State& state, const File& file, bool castagnoli, int64_t points) {
  for (auto _ : state) {
    InputReport report;
    report.path = file.path;
    const auto blocks = OpenBlocks(&report);
    for (std::string_view block; !(block = blocks->Peek(1 << 16)).empty();
         blocks->Skip(block.size())) {
      benchmark::DoNotOptimize(castagnoli ? Crc32c(block.data(), block.size())
                                          : crc32(0, reinterpret_cast<const Bytef*>(block.data()),
                                                  static_cast<uInt>(block.size())));
    }
  }
  Count(state, file, points);
}

constexpr int64_t kEvents = kEventSteps * kSeries, kItems = kWandbSteps * kSeries;
void EventChecksums(benchmark::State& state) { Checksums(state, Events(), true, kEvents); }
void EventRead(benchmark::State& state) { Read(state, TensorBoardReader(), Events(), kEvents); }
void EventAudit(benchmark::State& state) { Whole(state, Events(), kEvents); }
void WandbChecksums(benchmark::State& state) { Checksums(state, Wandb(), false, kItems); }
void WandbRead(benchmark::State& state) { Read(state, WandbReader(), Wandb(), kItems); }
void WandbAudit(benchmark::State& state) { Whole(state, Wandb(), kItems); }
void BareWandbAudit(benchmark::State& state) { Whole(state, BareWandb(), kItems); }

BENCHMARK(EventChecksums)->Unit(benchmark::kMillisecond);
BENCHMARK(EventRead)->Unit(benchmark::kMillisecond);
BENCHMARK(EventAudit)->Unit(benchmark::kMillisecond);
BENCHMARK(WandbChecksums)->Unit(benchmark::kMillisecond);
BENCHMARK(WandbRead)->Unit(benchmark::kMillisecond);
BENCHMARK(WandbAudit)->Unit(benchmark::kMillisecond);
BENCHMARK(BareWandbAudit)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumbline::audit
