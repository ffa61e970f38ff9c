#include "audit/readers/scalars/csv_long.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "audit/readers/scalars/csv_recognition.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {
namespace {

constexpr std::string_view kLongLabels[] = {"name",   "metric", "key",      "tag",
                                            "series", "scalar", "variable", "metric_name"};
constexpr std::string_view kRunLabels[] = {"run", "run_id", "run_name", "run_uuid", "experiment"};
constexpr std::string_view kLongValue = "value";

std::string LowerOf(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return lower;
}

template <size_t N>
bool IsNameIn(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), LowerOf(name)) != std::end(names);
}

// Returns true if each row has a non-numeric text in this column.
bool HoldsTexts(const std::vector<KeptCsvRow>& rows, size_t column, char separator) {
  return !rows.empty() && std::all_of(rows.begin(), rows.end(), [&](const KeptCsvRow& row) {
    const std::vector<std::string> cells = SplitRow(row.text, separator);
    return column >= cells.size() || (!cells[column].empty() && !NumberOf(cells[column]));
  });
}

}  // namespace

bool LongTable::Find(const std::vector<CsvColumn>& columns, const std::vector<KeptCsvRow>& rows,
                     char separator) {
  value_.reset();
  label_.clear();
  run_label_.clear();
  std::string value;
  for (size_t i = 0; i < columns.size(); ++i) {
    const std::string& name = columns[i].name;
    if (LowerOf(name) == kLongValue) value = name;
    if (label_.empty() && IsNameIn(name, kLongLabels) && HoldsTexts(rows, i, separator))
      label_ = name;
    if (IsNameIn(name, kRunLabels)) run_label_ = name;
  }
  if (!value.empty() && !label_.empty()) value_ = value;
  return found();
}

void LongTable::Text(const CsvColumn& column, const std::string& text) {
  if (column.name == label_) name_ = text;
  if (column.name == run_label_) run_ = text;
}

uint32_t LongTable::Series(PointSink* sink) {
  constexpr size_t kMostSeries = 1 << 16;
  if (name_.empty()) return PointSink::kNoColumn;
  if (first_run_.empty()) first_run_ = run_;
  const std::string name = run_ == first_run_ ? name_ : run_ + "/" + name_;
  const auto known = series_.find(name);
  if (known != series_.end()) return known->second;
  const uint32_t column = sink->Column(PlainName(name));
  if (series_.size() < kMostSeries) series_.emplace(name, column);
  return column;
}

bool ClientTable::Find(const std::vector<CsvColumn>& columns, const std::vector<KeptCsvRow>& rows,
                       char separator) {
  const auto named = std::find_if(columns.begin(), columns.end(),
                                  [](const CsvColumn& c) { return IsClientName(c.name); });
  if (named == columns.end()) return false;
  const auto at = static_cast<size_t>(named - columns.begin());
  std::set<std::string> clients;
  for (const KeptCsvRow& row : rows) {
    const std::vector<std::string> cells = SplitRow(row.text, separator);
    if (at < cells.size() && !cells[at].empty()) clients.insert(cells[at]);
  }
  if (clients.size() > 1) column_ = at;
  return found();
}

void ClientTable::Number(double client) {
  client_ = IsWhole(client) ? std::to_string(static_cast<int64_t>(client)) : "";
}

uint32_t ClientTable::Series(std::string_view name, PointSink* sink) {
  std::pair<std::string, std::string> key(client_, name);
  const auto known = series_.find(key);
  if (known != series_.end()) return known->second;
  const std::string whole = client_.empty() ? key.second : "client " + client_ + "/" + key.second;
  const uint32_t column = sink->Column(PlainName(whole));
  constexpr size_t kMostSeries = 1 << 16;
  if (series_.size() < kMostSeries) series_.emplace(std::move(key), column);
  return column;
}

}  // namespace plumbline::audit
