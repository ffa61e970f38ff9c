// Reads a batch as records: one JSON object whose columns are lists with one row for each sequence,
// as frameworks hold a batch of tensors.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "audit/readers/rollout/columns.h"

namespace plumbline::audit {

// Not thread-safe. The text of a batch must outlive the calls of Next.
class BatchRows {
 public:
  // Takes the text of an object. Returns false if it is not a batch for certain: the lists of
  // tokens and of log-probabilities must be lists of lists of numbers, and every other list of the
  // map's columns must have the same number of rows. Values that are no lists belong to each row.
  bool Take(std::string_view text, const ColumnMap& map);

  // Writes the next row as the text of a record. Returns false after the last one.
  bool Next(std::string* record);
  size_t row() const { return row_; }  // number of the last row, counted from 1; 0 before Next

 private:
  using Parts = std::vector<std::string_view>;

  bool Read(std::string_view text, const ColumnMap& map);

  Parts keys_, values_;  // values that belong to each row
  std::vector<std::pair<std::string_view, Parts>> lists_;
  size_t rows_ = 0, row_ = 0;
};

}  // namespace plumbline::audit
