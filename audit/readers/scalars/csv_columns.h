// The columns of a table, including exports of W&B and TensorBoard: their names, and facts about
// their content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/input/reader.h"
#include "audit/readers/scalars/csv_row.h"
#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// Returns true for one of the two columns of a range in W&B's exports, which are named "RUN -
// SERIES".
bool IsRange(std::string_view name);
// Returns the run whose name begins all columns but the step; empty if it is not an export of one
// run.
std::string ExportedRun(const std::vector<std::string_view>& columns, std::string_view step);

struct CsvColumn {
  std::string name;
  bool step = false, epoch = false, rank = false, skipped = false;
  bool numbers = false;  // the column had a number
  bool loss = false;     // the column is the first one that is a training loss
  bool rate = false;     // the column is a learning rate
  bool client = false;   // the column names the row's client (ClientTable)
  uint64_t values = 0, first_row = 0, last_row = 0;
  int64_t last_step = 0;
  uint32_t column = PointSink::kNoColumn;
};

// Returns a column for each name. If names are equal, adds numbers to them, so that values of one
// column do not replace those of another, and sets `twice` to the first such name.
std::vector<CsvColumn> ColumnsNamed(std::vector<std::string> names, std::string* twice);

// Returns the columns that had a value in nearly every row up to some row, and none after it, while
// other columns continue.
std::vector<EmptiedColumn> EmptiedAmong(const std::vector<CsvColumn>& columns, uint64_t rows);

// Returns the first column of a unit of training (IsUnitName) whose whole numbers rise, which is
// the step if there is no other.
std::optional<std::string> UnitOf(const std::vector<CsvColumn>& columns,
                                  const std::vector<KeptCsvRow>& rows, char separator);

// Returns what orders the rows of a table without a column of steps: a rising column of times or of
// parts of epochs, or the fact that all columns are of a training (a history of epochs). Otherwise
// returns an empty text.
std::string OrderOf(const std::vector<CsvColumn>& columns, const std::vector<KeptCsvRow>& rows,
                    char separator);

// Returns the names, separated by commas.
std::string ListNames(const std::vector<CsvColumn>& columns);

// If no column has a name that is not a number, names them "column 1", ... and returns true.
bool NumberNameless(std::vector<CsvColumn>* columns);

// True for TensorBoard's "Wall time,Step,Value".
bool IsTagExport(const std::vector<CsvColumn>& columns);
// Returns "loss_total" for "run-train-tag-loss_total.csv", as TensorBoard names its exports.
std::string_view TagOf(std::string_view path);

}  // namespace plumbline::audit
