#include "tests/audit/scalars/scalar_files.h"

#include <gtest/gtest.h>

#include <cstring>

namespace plumbline::audit::testing {
namespace {

// Bit by bit, as the polynomial is defined.
uint32_t Crc(std::string_view bytes, uint32_t polynomial) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
  }
  return ~crc;
}

template <typename Value>
std::string Raw(Value value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string MaskedCrc(std::string_view bytes) {
  const uint32_t crc = Crc(bytes, 0x82f63b78);  // Castagnoli
  return Raw<uint32_t>(((crc >> 15) | (crc << 17)) + 0xa282ead8);
}

}  // namespace

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string VarintField(uint32_t field, uint64_t value) {
  return Varint(uint64_t{field} << 3) + Varint(value);
}
std::string BytesField(uint32_t field, std::string_view bytes) {
  return Varint(uint64_t{field} << 3 | 2) + Varint(bytes.size()) + std::string(bytes);
}
std::string FloatField(uint32_t field, float value) {
  return Varint(uint64_t{field} << 3 | 5) + Raw(value);
}
std::string DoubleField(uint32_t field, double value) {
  return Varint(uint64_t{field} << 3 | 1) + Raw(value);
}

std::string TfRecord(std::string_view data) {
  const std::string length = Raw<uint64_t>(data.size());
  return length + MaskedCrc(length) + std::string(data) + MaskedCrc(data);
}

EventFile& EventFile::Record(const std::string& data) {
  bytes_ += TfRecord(data);
  return *this;
}

EventFile& EventFile::Value(int64_t step, std::string_view tag, const std::string& value) {
  time_ += 0.25;
  const std::string summary = BytesField(1, BytesField(1, tag) + value);
  return Record(DoubleField(1, time_) +
                (step == 0 ? "" : VarintField(2, static_cast<uint64_t>(step))) +
                BytesField(5, summary));
}

EventFile& EventFile::Scalar(int64_t step, std::string_view tag, float value) {
  return Value(step, tag, FloatField(2, value));
}

std::string Tensor(uint64_t dtype, const std::vector<int64_t>& dims, const std::string& values) {
  std::string shape;
  for (const int64_t dim : dims) shape += BytesField(2, VarintField(1, static_cast<uint64_t>(dim)));
  return BytesField(8, VarintField(1, dtype) + BytesField(2, shape) + values);
}

std::string Content(std::string_view bytes) { return BytesField(4, bytes); }

WandbRun::WandbRun() : bytes_(":W&B") { bytes_ += Raw<uint16_t>(0xBEE1) + '\0'; }

WandbRun& WandbRun::Record(const std::string& data) {
  size_t at = 0;
  bool first = true;
  do {
    size_t left = 32768 - bytes_.size() % 32768;
    if (left < 7) {
      bytes_.append(left, '\0');
      left = 32768;
    }
    const size_t size = std::min(left - 7, data.size() - at);
    const bool last = at + size == data.size();
    const std::string typed =
        static_cast<char>(first ? (last ? 1 : 2) : (last ? 4 : 3)) + data.substr(at, size);
    bytes_ += Raw(Crc(typed, 0xedb88320)) + Raw(static_cast<uint16_t>(size)) + typed;
    at += size;
    first = false;
  } while (at < data.size());
  return *this;
}

std::string WandbItem(std::string_view key, std::string_view json,
                      const std::vector<std::string>& nested) {
  std::string item = key.empty() ? "" : BytesField(1, key);
  for (const std::string& part : nested) item += BytesField(2, part);
  return item + BytesField(16, json);
}

WandbRun& WandbRun::History(int64_t step, const Items& items) {
  std::string history;
  for (const auto& [key, json] : items) history += BytesField(1, WandbItem(key, json));
  if (step >= 0)
    history += BytesField(2, step == 0 ? "" : VarintField(1, static_cast<uint64_t>(step)));
  return Record(VarintField(1, 7) + BytesField(2, history));
}

WandbRun& WandbRun::Stats(const Items& items) {
  std::string stats = BytesField(2, VarintField(1, 1700000000));
  for (const auto& [key, json] : items) stats += BytesField(3, WandbItem(key, json));
  return Record(BytesField(7, stats));
}

WandbRun& WandbRun::Begin(const std::string& id, int64_t starting_step, bool resumed) {
  std::string run = BytesField(1, id) + BytesField(3, "project") + BytesField(8, "bright-moon-1");
  if (starting_step > 0) run += VarintField(14, static_cast<uint64_t>(starting_step));
  if (resumed) run += VarintField(18, 1);
  return Record(BytesField(17, run));
}

WandbRun& WandbRun::Exit(int32_t code) {
  return Record(
      BytesField(18, code == 0 ? "" : VarintField(1, static_cast<uint64_t>(int64_t{code}))));
}

ReadPoints ReadAll(const Reader& reader, const std::vector<InputReport*>& reports,
                   const ReaderOptions& options) {
  ReadPoints read;
  std::map<uint64_t, std::vector<std::string>> sets;
  std::map<std::pair<std::string, uint32_t>, int64_t> complete;  // run, attempt
  std::pair<std::string, uint32_t> newest;
  for (const auto& source : reader.OpenWith(reports, options)) {
    for (v1::Batch batch; source->Next(&batch);) {
      for (const v1::SeriesSet& set : batch.series_sets()) {
        std::vector<std::string>& names = sets[set.id()];
        EXPECT_TRUE(names.empty()) << "declared twice";
        for (const v1::Site& site : set.sites()) names.push_back(site.op());
      }
      for (const v1::SeriesRows& rows : batch.series()) {
        const std::vector<std::string>& names = sets.at(rows.set());
        EXPECT_EQ(rows.value_size(), rows.step_size() * static_cast<int>(names.size()));
        const v1::Source& from = batch.sources(static_cast<int>(rows.source(0)));
        const std::pair<std::string, uint32_t> attempt{from.run(), from.attempt()};
        read.in_order &= attempt >= newest;
        newest = attempt;
        const auto done = complete.find(attempt);
        int value = 0;
        for (const int64_t step : rows.step()) {
          read.in_order &= done == complete.end() || step > done->second;
          for (const std::string& name : names) {
            const PointKey key{from.run(), from.attempt(), from.rank(), step, name};
            read.points.emplace_back(key, rows.value(value));
            EXPECT_TRUE(read.by_key.emplace(key, rows.value(value)).second) << "given twice";
            ++value;
          }
        }
      }
      for (const v1::Progress& progress : batch.progress()) {
        const v1::Source& from = batch.sources(static_cast<int>(progress.source()));
        complete[{from.run(), from.attempt()}] = progress.complete_through();
      }
      if (batch.sources_size() > 0) read.batches.push_back(batch);
    }
  }
  for (const auto& [key, value] : read.points) {
    const int64_t through = complete.at({std::get<0>(key), std::get<1>(key)});
    read.in_order &= std::get<3>(key) <= through;
  }
  return read;
}

}  // namespace plumbline::audit::testing
