// The columns of a table: their names, of exports of W&B and TensorBoard too, and what was seen in
// each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/input/reader.h"
#include "audit/readers/scalars/csv_row.h"
#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// W&B names the columns of an export "RUN - SERIES", with two that give the range within a bin.
bool IsRange(std::string_view name);
// The one run whose name all columns but the step begin with; empty: no export of one run.
std::string ExportedRun(const std::vector<std::string_view>& columns, std::string_view step);

struct CsvColumn {
  std::string name;
  bool step = false, epoch = false, skipped = false;
  bool numbers = false;  // it had one
  bool loss = false;     // the first one of a training loss
  uint64_t values = 0, first_row = 0, last_row = 0;
  int64_t last_step = 0;
  uint32_t column = PointSink::kNoColumn;
};

// Returns a column for each name. If names are equal, numbers them, and sets `twice` to the first
// such name: a value of one column does not replace the other's.
std::vector<CsvColumn> ColumnsNamed(std::vector<std::string> names, std::string* twice);

// Returns the columns that had a value in nearly every row up to one, and in none after it, while
// others go on.
std::vector<EmptiedColumn> EmptiedAmong(const std::vector<CsvColumn>& columns, uint64_t rows);

// Returns what orders the rows of a table without a column of steps: a column of times or of parts
// of epochs that rises, or that all columns are of a training (a history of epochs). If nothing
// does, returns an empty text.
std::string OrderOf(const std::vector<CsvColumn>& columns, const std::vector<KeptCsvRow>& rows,
                    char separator);

// Returns the names, parted by commas.
std::string ListNames(const std::vector<CsvColumn>& columns);

// If no column has a name that is not a number, names them "column 1", ... and returns true.
bool NumberNameless(std::vector<CsvColumn>* columns);

// TensorBoard's "Wall time,Step,Value".
bool IsTagExport(const std::vector<CsvColumn>& columns);
// "run-train-tag-loss_total.csv" -> "loss_total": how TensorBoard names its exports.
std::string_view TagOf(std::string_view path);

}  // namespace plumbline::audit
