// A row of a table as text, and which separator the table has.
#pragma once

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

// Spaces alone.
bool IsBlank(std::string_view text);

// What tables write where there is no value.
bool IsAbsent(std::string_view cell);

// The number of a cell. Where no comma parts the cells, one is the decimal sign; in quotes, commas
// part thousands. `step`: a count ("1,000", "755/1000"). Nothing: no number.
std::optional<double> CellNumber(std::string_view cell, char separator, bool step);

}  // namespace plumbline::audit
