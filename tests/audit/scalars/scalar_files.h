// Writes event files and W&B runs for tests, from the formats' own descriptions and without code of
// the readers. Also returns the points that a reader reads from files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "audit/readers/input/reader.h"

namespace plumbline::audit::testing {

// Protocol buffers by hand.
std::string Varint(uint64_t value);
std::string VarintField(uint32_t field, uint64_t value);
std::string BytesField(uint32_t field, std::string_view bytes);
std::string FloatField(uint32_t field, float value);
std::string DoubleField(uint32_t field, double value);

// An event file.
class EventFile {
 public:
  explicit EventFile(double wall_time = 1e9) : time_(wall_time) {
    Record(DoubleField(1, wall_time) + BytesField(3, "brain.Event:2"));
  }
  // The Event's bytes as they are.
  EventFile& Record(const std::string& data);
  EventFile& Scalar(int64_t step, std::string_view tag, float value);
  // A Summary.Value, its tag added.
  EventFile& Value(int64_t step, std::string_view tag, const std::string& value);
  const std::string& bytes() const { return bytes_; }

 private:
  double time_;
  std::string bytes_;
};

// A record's framing: length, checksum, data, checksum.
std::string TfRecord(std::string_view data);

// A TensorProto.
std::string Tensor(uint64_t dtype, const std::vector<int64_t>& dims, const std::string& values);
std::string Content(std::string_view bytes);  // its tensor_content

// An offline run of W&B.
class WandbRun {
 public:
  WandbRun();
  // The Record's bytes as they are.
  WandbRun& Record(const std::string& data);
  using Items = std::vector<std::pair<std::string, std::string>>;  // key, value_json
  // If `step` is -1, the record states no step.
  WandbRun& History(int64_t step, const Items& items);
  WandbRun& Stats(const Items& items);
  WandbRun& Begin(const std::string& id, int64_t starting_step = 0, bool resumed = false);
  WandbRun& Exit(int32_t code);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string WandbItem(std::string_view key, std::string_view json,
                      const std::vector<std::string>& nested = {});

// (run, attempt, rank, step, series) -> value of the points read, in the order of the batches.
using PointKey = std::tuple<std::string, uint32_t, uint32_t, int64_t, std::string>;
struct ReadPoints {
  std::vector<std::pair<PointKey, double>> points;
  std::map<PointKey, double> by_key;
  std::vector<v1::Batch> batches;
  bool in_order = true;  // by (run, attempt, step), and no progress beyond a later point
};
ReadPoints ReadAll(const Reader& reader, const std::vector<InputReport*>& reports,
                   const ReaderOptions& options = {});

}  // namespace plumbline::audit::testing
