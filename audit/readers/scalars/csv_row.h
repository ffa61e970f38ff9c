// A row of a table as text, and the separator of the table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

// Returns the end of the cell that begins at `from`: its separator, or `to`. Skips quoted text.
const char* CellEnd(const char* from, const char* to, char separator);

// Rewrites "1,3,4567" for two columns as "1,3.4567", if commas separate cells and are also the
// decimal signs. The first cell is a count. Returns an empty text if the row does not fit.
std::string WithPoints(std::string_view row, size_t columns);

// Removes quotes, and makes doubled quotes single.
std::string CellText(std::string_view cell);
std::vector<std::string> SplitRow(std::string_view row, char separator);

// Returns true if a line after the first has this number of cells.
bool HoldsRow(std::string_view lines, char separator, size_t cells);

// Returns the separator (comma, tab or semicolon) that gives the header most cells; 0 if there is
// none.
char SeparatorOf(std::string_view header);

// Returns true if a quote is open at the row's end, so that the row continues on the next line.
bool IsOpen(std::string_view row);

struct CsvRow {
  std::string_view text;
  uint64_t offset = 0;  // offset in bytes
  bool ended = true;    // true if a newline ends the row
};

struct KeptCsvRow {
  std::string text;
  uint64_t offset = 0;
  bool ended = true;
};

// Joins the lines of a row that has newlines between quotes. Not thread-safe.
class RowJoiner {
 public:
  // Takes the next line and its number. If the line completes a row, sets `*row` and returns true.
  // `*row` is valid until the next call, and as long as the line.
  bool Take(const CsvRow& line, uint64_t number, CsvRow* row);
  bool open() const { return !open_.empty(); }
  size_t size() const { return open_.size(); }
  uint64_t offset() const { return offset_; }
  // Returns the number of the line that opened the row, from 1.
  uint64_t number() const { return number_; }
  // Returns true if the newest line of the row has its newline.
  bool ended() const { return ended_; }
  // Returns the lines of the open row, and removes them.
  std::string Release();

 private:
  std::string open_, whole_;
  uint64_t offset_ = 0, number_ = 0;
  bool ended_ = true;
};

// True if the text has only spaces.
bool IsBlank(std::string_view text);

// True for text that tables contain in place of a value.
bool IsAbsent(std::string_view cell);

// Returns the number in a cell, or nullopt. If commas do not separate cells, a comma is the decimal
// sign. In quotes, commas separate thousands. If `step`, also reads a count ("1,000", "755/1000").
std::optional<double> CellNumber(std::string_view cell, char separator, bool step);

}  // namespace plumbline::audit
