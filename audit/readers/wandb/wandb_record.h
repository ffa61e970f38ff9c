// Reads one record of a .wandb file (wandb_internal.Record). Reads only the fields that series
// need.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "audit/readers/scalars/json_record.h"
#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// Keeps the state of the step counters between records. All records of a file go to one sink. Not
// thread-safe.
class WandbRecords {
 public:
  // Returns false if the bytes are not a record; the values before the error are still added.
  bool Read(std::string_view record, PointSink* sink);
  // Returns the number of rows whose `_step` is not a step.
  uint64_t odd_steps() const { return odd_steps_; }
  // Returns the metrics that the run declares as axes of others (define_metric), in their order.
  std::vector<std::string> axes() const;
  // Returns the config: numbers, texts and flags as JSON.
  const std::map<std::string, std::string>& config() const { return config_; }

 private:
  // The bytes of a known item before its value, and the use of the value.
  struct KnownItem {
    enum class What : uint8_t { kNumber, kStep, kNothing };
    std::string head;
    What what = What::kNothing;
    uint32_t column = 0;
    uint32_t next = UINT32_MAX;  // index of the item that followed last time
  };
  // Fast path for a known item. Returns false if the item is another one or its value is not a
  // number, and then does nothing.
  bool ReadKnownItem(std::string_view bytes);
  void LearnItem(std::string_view head, KnownItem::What what, uint32_t column);
  bool ReadHistory(std::string_view bytes, PointSink* sink);
  bool ReadItem(std::string_view bytes, PointSink* sink);
  bool ReadStats(std::string_view bytes, PointSink* sink);
  bool ReadRun(std::string_view bytes, PointSink* sink);
  bool ReadMetric(std::string_view bytes);
  bool ReadConfig(std::string_view bytes);
  uint32_t ColumnOf(std::string_view name, PointSink* sink);
  void AddRow(int64_t step, PointSink* sink);
  void TakeAxes(PointSink* sink);
  int64_t StepOn(uint32_t column, int64_t step);
  size_t FindAxis(std::string_view name) const;
  void Declare(std::string_view name, bool begins, std::string_view axis);
  bool ReadExit(std::string_view bytes, PointSink* sink);
  // Joins the key and nested keys in name_, or returns the key itself.
  bool ReadKeyed(std::string_view bytes, std::string_view* name, std::string_view* value);
  void ReadObject(std::string_view name, std::string_view json, PointSink* sink);
  void TakeStep(std::string_view json);

  int64_t next_step_ = 0;  // step of a row that has none
  bool any_row_ = false;
  bool ran_ = false;  // the run's record was read
  uint64_t odd_steps_ = 0;
  // A metric that is the axis of others.
  struct Axis {
    std::string name;
    uint32_t column = PointSink::kNoColumn;
    std::optional<int64_t> newest = {};
  };
  // A metric with an axis; "train/" stands for all metrics that begin so.
  struct Declared {
    std::string name;
    bool begins = false;
    size_t axis = 0;  // index into axes_
  };
  static constexpr size_t kMostDeclared = 256, kNoAxis = SIZE_MAX;
  std::vector<Axis> axes_;
  std::vector<Declared> declared_;
  // If metrics have several axes: names of the columns, and the indexes of their axes.
  std::vector<std::string> of_columns_;
  std::vector<size_t> axis_of_columns_;
  std::map<std::string, std::string> config_;
  std::string name_;
  JsonRecord object_;
  // State of the current row.
  std::vector<std::pair<uint32_t, double>> row_;
  int64_t item_step_ = -1;
  bool has_step_item_ = false;
  // Known items. They repeat in the same order in each row.
  std::vector<KnownItem> known_;
  absl::flat_hash_map<std::string, uint32_t> known_by_head_;
  uint32_t last_ = UINT32_MAX;  // index into known_ of the preceding item
};

}  // namespace plumbline::audit
