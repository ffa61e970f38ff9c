// Recognises tables of scalars.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

inline constexpr size_t kCsvLookRows = 64;  // number of rows from which the step's column is chosen
inline constexpr std::string_view kCsvMark = "\xEF\xBB\xBF";

// PointFormat.recognise for tables.
bool IsCsv(std::string_view path, std::string_view head);
// The same if the user names the column of steps.
bool IsCsv(std::string_view path, std::string_view head, const std::string& step);

// True for "Time", "wall_time", "timestamp": such a column orders rows without a step.
bool IsTimeName(std::string_view name);
// True for what a trainer counts if it has no steps: "episode", "round", "timesteps".
bool IsUnitName(std::string_view name);
// Returns true if the column has rising numbers, one in each row. `whole`: they must be whole
// numbers.
bool RowsRise(const std::vector<std::vector<std::string>>& rows, size_t column, char separator,
              bool whole);
// True for the name of the clients of a federated training: "client", "client_id", "cid".
bool IsClientName(std::string_view name);
// Returns true if the column has rising whole numbers; if the table has clients, in the rows of
// each of them.
bool UnitRises(const std::vector<std::string>& names,
               const std::vector<std::vector<std::string>>& rows, size_t column, char separator);
// Returns true for a history of epochs without a column of epochs. It has only numbers, a loss and
// other columns of a training. A table with learning rates may be of trials, so it is none.
bool IsHistory(const std::vector<std::string>& names,
               const std::vector<std::vector<std::string>>& rows, char separator);

}  // namespace plumbline::audit
