// Parses one line of a rollout file into the columns of a ColumnMap. Checks each column's content;
// rollout/sequence.h checks how columns fit together.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/rollout/columns.h"

namespace plumbline::audit {

// The problem of a line.
struct LineProblem {
  size_t offset = 0;     // offset in the line, in bytes
  std::string expected;  // expected content: "a list of numbers for entropy"
  std::string found;
  bool cut = false;  // the line ends where more was expected
  // The record is well-formed, but its log-probabilities are null, so there is nothing to judge.
  bool no_values = false;
};

// Not thread-safe, because it reuses vectors from line to line.
class RolloutParser {
 public:
  explicit RolloutParser(const ColumnMap& map);  // `map` must outlive it

  // Returns false if the line is refused.
  bool Parse(std::string_view line, RolloutColumns* columns, LineProblem* problem);

 private:
  // A key of the format: a column, or an object with inner keys.
  struct Key {
    std::string name;
    const ColumnSource* source = nullptr;
    std::vector<Key> inner;
  };

  static void Insert(std::vector<Key>* keys, const ColumnSource& source, size_t level);
  bool ReadObject(JsonCursor& cursor, const std::vector<Key>& keys);
  bool ReadColumn(JsonCursor& cursor, const ColumnSource& source);
  bool ReadAnother(JsonCursor& cursor, const ColumnSource& source, size_t at);
  bool ReadScalar(JsonCursor& cursor, const ColumnSource& source, ColumnValue* value);
  bool ReadCalls(JsonCursor& cursor, ColumnValue* value);
  bool ReadList(JsonCursor& cursor, const ColumnSource& source, ColumnValue* value);
  bool ReadRouting(JsonCursor& cursor, const ColumnSource& source, ColumnValue* value);
  bool ReadLayers(JsonCursor& cursor, const ColumnSource& source, size_t row, ColumnValue* value);
  bool Misspelt(JsonCursor& cursor, std::string_view key, size_t offset);
  bool IsValue(const JsonCursor& cursor);
  bool Wrong(const JsonCursor& cursor, size_t offset, std::string expected);

  const ColumnMap& map_;
  std::vector<Key> keys_;
  std::set<std::string, std::less<>> foreign_;  // keys that belong to no column
  std::string_view line_;
  RolloutColumns* columns_ = nullptr;
  LineProblem* problem_ = nullptr;
};

// Returns the text at an offset of a line, for a message: a word, a number, or a quoted beginning.
std::string FoundAt(std::string_view line, size_t offset);

// Returns the offset of element `index` of the list that begins at `offset`. If there is none,
// returns `offset`.
size_t OffsetOfElement(std::string_view line, size_t offset, size_t index);

}  // namespace plumbline::audit
