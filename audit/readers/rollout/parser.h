// One line of a rollout file into the columns of a ColumnMap. What a column must hold is checked
// here, how columns fit together in rollout_sequence.h.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/rollout/columns.h"

namespace plumbline::audit {

// What is wrong with a line.
struct LineProblem {
  size_t offset = 0;     // byte of the line
  std::string expected;  // "a list of numbers for entropy"
  std::string found;
  bool cut = false;  // the line ends where more was expected
};

// Not thread-safe: vectors are kept from line to line.
class RolloutParser {
 public:
  explicit RolloutParser(const ColumnMap& map);  // which outlives it

  // False when the line is refused.
  bool Parse(std::string_view line, RolloutColumns* columns, LineProblem* problem);

 private:
  // A key of the format: a column, or an object whose keys are looked into.
  struct Key {
    std::string name;
    const ColumnSource* source = nullptr;
    std::vector<Key> inner;
  };

  static void Insert(std::vector<Key>* keys, const ColumnSource& source, size_t level);
  bool ReadObject(JsonCursor& cursor, const std::vector<Key>& keys);
  bool ReadColumn(JsonCursor& cursor, const ColumnSource& source);
  bool ReadScalar(JsonCursor& cursor, const ColumnSource& source, ColumnValue* value);
  bool ReadList(JsonCursor& cursor, const ColumnSource& source, ColumnValue* value);
  bool ReadRouting(JsonCursor& cursor, const ColumnSource& source, ColumnValue* value);
  bool ReadLayers(JsonCursor& cursor, const ColumnSource& source, size_t row, ColumnValue* value);
  bool Misspelt(JsonCursor& cursor, std::string_view key, size_t offset);
  bool IsValue(const JsonCursor& cursor);
  bool Wrong(const JsonCursor& cursor, size_t offset, std::string expected);

  const ColumnMap& map_;
  std::vector<Key> keys_;
  std::set<std::string, std::less<>> foreign_;  // keys found to be nobody's
  std::string_view line_;
  RolloutColumns* columns_ = nullptr;
  LineProblem* problem_ = nullptr;
};

// What stands at a byte of a line, for a message: a word, a number, a quoted beginning.
std::string FoundAt(std::string_view line, size_t offset);

// The byte of element `index` of the list whose value begins at `offset`; `offset` where there is
// none.
size_t OffsetOfElement(std::string_view line, size_t offset, size_t index);

}  // namespace plumbline::audit
