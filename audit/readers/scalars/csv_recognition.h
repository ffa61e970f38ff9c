// Which texts are tables of scalars.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

inline constexpr size_t kCsvLookRows = 64;  // by which the step's column is told
inline constexpr std::string_view kCsvMark = "\xEF\xBB\xBF";

// PointFormat.recognise of tables.
bool IsCsv(std::string_view path, std::string_view head);
// The same where the user says what the column of steps is called.
bool IsCsv(std::string_view path, std::string_view head, const std::string& step);

// "Time", "wall_time", "timestamp": a column that orders rows where none has their step.
bool IsTimeName(std::string_view name);
// Each row has a number in the column, above that of the row before. `whole`: and a whole one.
bool RowsRise(const std::vector<std::vector<std::string>>& rows, size_t column, char separator,
              bool whole);
// A history of epochs without their number: a loss, other columns of a training, numbers alone. A
// table with rates may be one of trials.
bool IsHistory(const std::vector<std::string>& names,
               const std::vector<std::vector<std::string>>& rows, char separator);

}  // namespace plumbline::audit
