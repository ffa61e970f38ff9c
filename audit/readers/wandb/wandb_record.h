// One record of a .wandb file (wandb_internal.Record), as far as series need it.
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

// Keeps between records what steps are counted on from. All of a file's records go to one sink. Not
// thread-safe.
class WandbRecords {
 public:
  // False where the bytes are no record; what was read of it before that counts.
  bool Read(std::string_view record, PointSink* sink);
  // Rows whose `_step` is no step.
  uint64_t odd_steps() const { return odd_steps_; }
  // The metric that the run declares as the axis of others (define_metric); empty: none.
  const std::string& axis() const { return axis_; }
  // What its config states: numbers, texts and flags as JSON.
  const std::map<std::string, std::string>& config() const { return config_; }

 private:
  // What begins an item that came before, up to its value, and what is to be done with that.
  struct KnownItem {
    enum class What : uint8_t { kNumber, kStep, kNothing };
    std::string head;
    What what = What::kNothing;
    uint32_t column = 0;
    uint32_t next = UINT32_MAX;  // the one that came behind it last
  };
  // False: it is another one, or its value no number, and nothing was done.
  bool ReadKnownItem(std::string_view bytes);
  void LearnItem(std::string_view head, KnownItem::What what, uint32_t column);
  bool ReadHistory(std::string_view bytes, PointSink* sink);
  bool ReadItem(std::string_view bytes, PointSink* sink);
  bool ReadStats(std::string_view bytes, PointSink* sink);
  bool ReadRun(std::string_view bytes, PointSink* sink);
  bool ReadMetric(std::string_view bytes);
  bool ReadConfig(std::string_view bytes);
  int64_t StepOfRow(int64_t step, PointSink* sink);
  bool ReadExit(std::string_view bytes, PointSink* sink);
  // key and nested keys -> name_ or the key itself.
  bool ReadKeyed(std::string_view bytes, std::string_view* name, std::string_view* value);
  void ReadObject(std::string_view name, std::string_view json, PointSink* sink);
  void TakeStep(std::string_view json);

  int64_t next_step_ = 0;  // of a row that does not say
  bool any_row_ = false;
  bool ran_ = false;  // the run's record was read
  uint64_t odd_steps_ = 0;
  std::string axis_;
  uint32_t axis_column_ = PointSink::kNoColumn;
  std::optional<int64_t> on_axis_;  // the newest value of the axis
  std::map<std::string, std::string> config_;
  std::string name_;
  JsonRecord object_;
  // Of the row that is read.
  std::vector<std::pair<uint32_t, double>> row_;
  int64_t item_step_ = -1;
  bool has_step_item_ = false;
  // Items come round in the same order again and again.
  std::vector<KnownItem> known_;
  absl::flat_hash_map<std::string, uint32_t> known_by_head_;
  uint32_t last_ = UINT32_MAX;  // of known_: the item before
};

}  // namespace plumbline::audit
