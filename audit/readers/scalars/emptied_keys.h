// Finds keys of JSON lines, and names in logs, that had numbers and are null or None from some line
// on. The value may be a NaN that the writer could not print, or a metric that is no longer
// computed. Not thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "audit/readers/input/reader.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {

class EmptiedKeys {
 public:
  void Value(uint32_t column, int64_t step) {
    Key* key = At(column);
    if (key == nullptr) return;
    ++key->values;
    key->last_step = step;
    key->nulls = 0;
  }
  void Null(uint32_t column, std::string_view name) {
    Key* key = At(column);
    if (key == nullptr) return;
    ++key->nulls;
    ++key->all_nulls;
    key->name = PlainName(name);
  }
  // Reports the keys that had values in nine of ten lines, and in at least `fewest`, and that end
  // with at least five nulls.
  void Report(InputReport* report, uint64_t fewest = 10) const {
    constexpr uint64_t kFewestNulls = 5;
    for (const Key& key : keys_) {
      const uint64_t earlier = key.all_nulls - key.nulls;
      if (key.values < fewest || key.nulls < kFewestNulls || 9 * earlier > key.values) continue;
      report->emptied.push_back({key.name, key.last_step, key.values, key.nulls});
    }
  }

 private:
  static constexpr uint32_t kMostKeys = 1 << 16;
  struct Key {
    std::string name;
    uint64_t values = 0, all_nulls = 0;
    uint64_t nulls = 0;  // number of nulls since the last value
    int64_t last_step = 0;
  };
  Key* At(uint32_t column) {
    if (column >= kMostKeys) return nullptr;
    if (column >= keys_.size()) keys_.resize(column + 1);
    return &keys_[column];
  }
  std::vector<Key> keys_;
};

}  // namespace plumbline::audit
