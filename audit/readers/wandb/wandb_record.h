// One record of a .wandb file (wandb_internal.Record), as far as series need it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "audit/readers/scalars/json_record.h"
#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// Keeps between records what steps are counted on from. Not thread-safe.
class WandbRecords {
 public:
  // False where the bytes are no record; what was read of it before that counts.
  bool Read(std::string_view record, PointSink* sink);
  // Rows whose `_step` is no step.
  uint64_t odd_steps() const { return odd_steps_; }

 private:
  bool ReadHistory(std::string_view bytes, PointSink* sink);
  bool ReadItem(std::string_view bytes, PointSink* sink);
  bool ReadStats(std::string_view bytes, PointSink* sink);
  bool ReadRun(std::string_view bytes, PointSink* sink);
  bool ReadExit(std::string_view bytes, PointSink* sink);
  // key and nested keys -> name_ or the key itself.
  bool ReadKeyed(std::string_view bytes, std::string_view* name, std::string_view* value);
  void ReadObject(std::string_view name, std::string_view json, PointSink* sink);
  void TakeStep(std::string_view json);

  int64_t next_step_ = 0;  // of a row that does not say
  bool any_row_ = false;
  bool ran_ = false;  // the run's record was read
  uint64_t odd_steps_ = 0;
  std::string name_;
  JsonRecord object_;
  // Of the row that is read.
  std::vector<std::pair<uint32_t, double>> row_;
  int64_t item_step_ = -1;
  bool has_step_item_ = false;
};

}  // namespace plumbline::audit
