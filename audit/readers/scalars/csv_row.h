// A row of a table as text, and which separator the table has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

// The end of the cell that begins at `from`: its separator, or `to`. Quotes are passed.
const char* CellEnd(const char* from, const char* to, char separator);

// "1,3,4567" of a table with two columns: "1,3.4567". Of a row with commas between its cells and in
// the fractions of all but the first, a count; empty if the row is none.
std::string WithPoints(std::string_view row, size_t columns);

// Quotes taken off, doubled ones made single.
std::string CellText(std::string_view cell);
std::vector<std::string> SplitRow(std::string_view row, char separator);

// Comma, tab or semicolon, whichever parts the header into most; 0: none.
char SeparatorOf(std::string_view header);

// A quote is open at the row's end: the row goes on in the next line.
bool IsOpen(std::string_view row);

struct CsvRow {
  std::string_view text;
  uint64_t offset = 0;  // bytes
  bool ended = true;    // by a newline
};

struct KeptCsvRow {
  std::string text;
  uint64_t offset = 0;
  bool ended = true;
};

// Joins the lines of a row that has newlines between quotes. Not thread-safe.
class RowJoiner {
 public:
  // Takes the next line and its number. Returns true if a row is whole: `*row`, which is valid
  // until the next call and while the line is.
  bool Take(const CsvRow& line, uint64_t number, CsvRow* row);
  bool open() const { return !open_.empty(); }
  size_t size() const { return open_.size(); }
  uint64_t offset() const { return offset_; }
  uint64_t number() const { return number_; }  // of the line that opened it, from 1
  bool ended() const { return ended_; }        // its newest line has its newline
  // Returns the lines of the open row, and forgets them.
  std::string Release();

 private:
  std::string open_, whole_;
  uint64_t offset_ = 0, number_ = 0;
  bool ended_ = true;
};

// Spaces alone.
bool IsBlank(std::string_view text);

// What tables write where there is no value.
bool IsAbsent(std::string_view cell);

// The number of a cell. Where no comma parts the cells, one is the decimal sign; in quotes, commas
// part thousands. `step`: a count ("1,000", "755/1000"). Nothing: no number.
std::optional<double> CellNumber(std::string_view cell, char separator, bool step);

}  // namespace plumbline::audit
