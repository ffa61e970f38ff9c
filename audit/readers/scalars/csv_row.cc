#include "audit/readers/scalars/csv_row.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "audit/readers/scalars/number_text.h"

namespace plumbline::audit {
namespace {

const char* FindChar(const char* from, const char* to, char c) {
  const void* at = std::memchr(from, c, static_cast<size_t>(to - from));
  return at == nullptr ? to : static_cast<const char*>(at);
}

}  // namespace

const char* CellEnd(const char* from, const char* to, char separator) {
  if (from == to || *from != '"') return FindChar(from, to, separator);
  const char* at = from + 1;
  while (at != to) {
    at = FindChar(at, to, '"');
    if (at == to) return to;
    if (at + 1 == to || at[1] != '"') break;
    at += 2;
  }
  return FindChar(at, to, separator);
}

std::string CellText(std::string_view cell) {
  while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
  while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
  if (cell.size() < 2 || cell.front() != '"' || cell.back() != '"') return std::string(cell);
  std::string text;
  for (size_t i = 1; i + 1 < cell.size(); ++i) {
    text += cell[i];
    if (cell[i] == '"' && cell[i + 1] == '"') ++i;
  }
  return text;
}

std::vector<std::string> SplitRow(std::string_view row, char separator) {
  std::vector<std::string> cells;
  const char* at = row.data();
  const char* to = at + row.size();
  while (true) {
    const char* end = CellEnd(at, to, separator);
    cells.push_back(CellText({at, static_cast<size_t>(end - at)}));
    if (end == to) return cells;
    at = end + 1;
  }
}

std::string WithPoints(std::string_view row, size_t columns) {
  if (columns < 2 || row.find_first_of(".\"") != std::string_view::npos) return "";
  const std::vector<std::string> cells = SplitRow(row, ',');
  if (cells.size() != 2 * columns - 1 || !CountIn(cells[0])) return "";
  std::string joined = cells[0];
  for (size_t i = 1; i + 1 < cells.size(); i += 2) {
    const std::string number = cells[i] + "." + cells[i + 1];
    if (cells[i].empty() || cells[i + 1].empty() || cells[i + 1][0] < '0' ||
        cells[i + 1][0] > '9' || !NumberOf(number))
      return "";
    joined.append(",").append(number);
  }
  return joined;
}

bool HoldsRow(std::string_view lines, char separator, size_t cells) {
  size_t at = lines.find('\n');
  while (at != std::string_view::npos) {
    lines.remove_prefix(at + 1);
    at = lines.find('\n');
    if (SplitRow(lines.substr(0, at), separator).size() == cells) return true;
  }
  return false;
}

char SeparatorOf(std::string_view header) {
  char best = 0;
  std::ptrdiff_t most = 0;
  for (const char separator : {',', '\t', ';'}) {
    bool quoted = false;
    std::ptrdiff_t count = 0;
    for (const char c : header) {
      quoted ^= c == '"';
      count += !quoted && c == separator ? 1 : 0;
    }
    if (count > most) {
      most = count;
      best = separator;
    }
  }
  return best;
}

bool IsOpen(std::string_view row) {
  if (std::memchr(row.data(), '"', row.size()) == nullptr) return false;
  return std::count(row.begin(), row.end(), '"') % 2 == 1;
}

bool RowJoiner::Take(const CsvRow& line, uint64_t number, CsvRow* row) {
  if (open_.empty() && !IsOpen(line.text)) {
    *row = line;
    return true;
  }
  // If this line has an odd number of quotes, it closes the open one.
  const bool closes = !open_.empty() && IsOpen(line.text);
  if (open_.empty()) {
    offset_ = line.offset;
    number_ = number;
  }
  open_.append(open_.empty() ? "" : "\n").append(line.text);
  ended_ = line.ended;
  if (!closes) return false;
  whole_ = Release();
  *row = {whole_, offset_, ended_};
  return true;
}

std::string RowJoiner::Release() { return std::exchange(open_, ""); }

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t") == std::string_view::npos;
}

std::optional<double> CellNumber(std::string_view cell, char separator, bool step) {
  if (const std::optional<double> number = NumberOf(cell)) return number;
  const auto commas = std::count(cell.begin(), cell.end(), ',');
  if (step) {
    const std::optional<int64_t> count = CountIn(cell);
    return count ? std::optional(static_cast<double>(*count)) : std::nullopt;
  }
  if (commas == 0) return std::nullopt;
  std::string text(cell);
  if (separator == ',' || cell.find('.') != std::string_view::npos) {
    // In "12,345.6" in quotes, the whole part must be a count with commas.
    const size_t point = std::min(text.find('.'), text.size());
    if (!CountIn(std::string_view(text).substr(0, point))) return std::nullopt;
    std::erase(text, ',');
  } else if (commas == 1) {
    std::replace(text.begin(), text.end(), ',', '.');
  }
  return NumberOf(text);
}

bool IsAbsent(std::string_view cell) {
  static constexpr std::string_view kWords[] = {"",    "none", "None", "null", "NULL", "NA",
                                                "N/A", "n/a",  "-",    "--",   "<NA>"};
  return std::find(std::begin(kWords), std::end(kWords), cell) != std::end(kWords);
}

}  // namespace plumbline::audit
