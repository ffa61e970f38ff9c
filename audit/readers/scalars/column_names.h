// Finds the columns of series by the names that a file repeats in every record.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// Records mostly have their names in the same order. Then a lookup takes one comparison. Memory is
// bounded. Not thread-safe.
class ColumnNames {
 public:
  // Begins a new record.
  void Begin() { next_ = 0; }
  // Returns the column of `prefix` + `name`.
  uint32_t Of(PointSink* sink, std::string_view prefix, std::string_view name);
  // Returns the column of a name that some record had; kNoColumn for any other name.
  uint32_t Find(std::string_view name) const;

 private:
  struct Entry {
    std::string name;  // name with its prefix
    uint32_t column;
  };
  static constexpr size_t kMostNames = 1 << 16;

  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;
  size_t next_ = 0;  // index of the expected entry
};

}  // namespace plumbline::audit
