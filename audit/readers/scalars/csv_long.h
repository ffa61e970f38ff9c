// Reads tables with one row per value: "step,name,value", "run,metric,step,value".
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "audit/readers/scalars/csv_columns.h"
#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// The positions of names and values in such a table. Not thread-safe.
class LongTable {
 public:
  // Returns true if the table has a column of names, in text, and one called "value".
  bool Find(const std::vector<CsvColumn>& columns, const std::vector<KeptCsvRow>& rows,
            char separator);
  bool found() const { return value_.has_value(); }
  // Call Begin for each row, then Text for each cell with a text. IsValue returns true if the
  // number in this column is the row's value.
  void Begin() { name_.clear(), run_.clear(); }
  void Text(const CsvColumn& column, const std::string& text);
  bool IsValue(const CsvColumn& column) const { return found() && column.name == *value_; }
  // Returns the column of the row's series. If the run is not the first one, the name begins with
  // the run.
  uint32_t Series(PointSink* sink);

 private:
  std::string label_, run_label_;     // names of columns
  std::optional<std::string> value_;  // name of the column of values
  std::string name_, run_, first_run_;
  std::map<std::string, uint32_t> series_;
};

// A table whose rows are of the clients of a federated training: "round,client,loss". Each client
// has its own series. Not thread-safe.
class ClientTable {
 public:
  // Returns true if a column names several clients. Its index is then column().
  bool Find(const std::vector<CsvColumn>& columns, const std::vector<KeptCsvRow>& rows,
            char separator);
  bool found() const { return column_.has_value(); }
  size_t column() const { return *column_; }
  // Call Begin for each row, then Number or Text for the cell of the client.
  void Begin() { client_.clear(); }
  void Number(double client);
  void Text(std::string client) { client_ = std::move(client); }
  // Returns the column of the current client's series `name`, "client 3/loss".
  uint32_t Series(std::string_view name, PointSink* sink);

 private:
  std::optional<size_t> column_;
  std::string client_;
  std::map<std::pair<std::string, std::string>, uint32_t> series_;  // client and name
};

}  // namespace plumbline::audit
