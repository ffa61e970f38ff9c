#include "audit/readers/scalars/csv_columns.h"

#include <algorithm>
#include <map>
#include <set>

#include "audit/readers/input/file.h"
#include "audit/readers/scalars/csv_recognition.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {

bool IsRange(std::string_view name) { return name.ends_with("__MIN") || name.ends_with("__MAX"); }

std::string ExportedRun(const std::vector<std::string_view>& columns, std::string_view step) {
  if (step != "Step") return "";
  std::set<std::string_view> runs;
  for (const std::string_view name : columns) {
    if (name == step) continue;
    const size_t at = name.rfind(" - ");
    if (at == std::string_view::npos || at == 0) return "";
    runs.insert(name.substr(0, at));
  }
  return runs.size() == 1 ? PlainName(*runs.begin()) : "";
}

std::string_view TagOf(std::string_view path) {
  path = path.substr(path.rfind('/') + 1);
  const size_t tag = path.find("tag-");
  const std::string_view stem = path.substr(0, path.find('.'));
  if (tag == std::string_view::npos) return HasTrainingWord(stem) ? stem : "Value";
  path.remove_prefix(tag + 4);
  return path.substr(0, std::min(path.rfind(".csv"), path.rfind(".json")));
}

std::vector<CsvColumn> ColumnsNamed(std::vector<std::string> names, std::string* twice) {
  std::vector<CsvColumn> columns;
  std::map<std::string, size_t> seen;
  for (std::string& name : names) {
    const size_t count = name.empty() ? 1 : ++seen[name];
    if (count > 1 && twice->empty()) *twice = name;
    if (count > 1) name += " (" + std::to_string(count) + ")";
    columns.push_back({});
    columns.back().name = std::move(name);
  }
  return columns;
}

std::vector<EmptiedColumn> EmptiedAmong(const std::vector<CsvColumn>& columns, uint64_t rows) {
  constexpr uint64_t kFewestValues = 10, kFewestEmpty = 5;
  const auto dense = [](const CsvColumn& c) {
    return c.values >= kFewestValues && 10 * c.values >= 9 * (c.last_row - c.first_row + 1);
  };
  const auto ended = [&](const CsvColumn& c) { return rows - c.last_row >= kFewestEmpty; };
  const bool goes_on = std::any_of(columns.begin(), columns.end(),
                                   [&](const CsvColumn& c) { return dense(c) && !ended(c); });
  const auto others = std::count_if(columns.begin(), columns.end(), dense);
  std::vector<EmptiedColumn> emptied;
  for (const CsvColumn& c : columns) {
    if (!dense(c) || !ended(c) || !(goes_on || others == 1)) continue;
    emptied.push_back({PlainName(c.name), c.last_step, c.values, rows - c.last_row});
  }
  return emptied;
}

namespace {

std::vector<std::vector<std::string>> CellsOf(const std::vector<KeptCsvRow>& rows, char separator) {
  std::vector<std::vector<std::string>> cells;
  for (const KeptCsvRow& row : rows) cells.push_back(SplitRow(row.text, separator));
  return cells;
}

}  // namespace

std::optional<std::string> UnitOf(const std::vector<CsvColumn>& columns,
                                  const std::vector<KeptCsvRow>& rows, char separator) {
  const std::vector<std::vector<std::string>> cells = CellsOf(rows, separator);
  std::vector<std::string> names;
  for (const CsvColumn& c : columns) names.push_back(c.name);
  for (size_t i = 0; i < columns.size(); ++i) {
    if (IsUnitName(names[i]) && UnitRises(names, cells, i, separator)) return names[i];
  }
  return std::nullopt;
}

std::string OrderOf(const std::vector<CsvColumn>& columns, const std::vector<KeptCsvRow>& rows,
                    char separator) {
  std::vector<std::string> names;
  for (const CsvColumn& c : columns) names.push_back(c.name);
  const std::vector<std::vector<std::string>> cells = CellsOf(rows, separator);
  for (size_t i = 0; i < columns.size(); ++i) {
    if ((IsTimeName(names[i]) || IsEpochName(names[i])) && RowsRise(cells, i, separator, false))
      return Quoted(PlainName(names[i])) + ", which rises";
  }
  return IsHistory(names, cells, separator) ? "columns of a training alone" : "";
}

bool NumberNameless(std::vector<CsvColumn>* columns) {
  const bool named = std::any_of(columns->begin(), columns->end(), [](const CsvColumn& c) {
    return !c.name.empty() && !NumberOf(c.name);
  });
  if (named) return false;
  for (size_t i = 0; i < columns->size(); ++i)
    (*columns)[i].name = "column " + std::to_string(i + 1);
  return true;
}

bool IsTagExport(const std::vector<CsvColumn>& columns) {
  return columns.size() == 3 && columns[0].name == "Wall time" && columns[1].name == "Step" &&
         columns[2].name == "Value";
}

std::string ListNames(const std::vector<CsvColumn>& columns) {
  std::string list;
  for (const CsvColumn& c : columns) list += (list.empty() ? "" : ", ") + PlainName(c.name);
  return list;
}

}  // namespace plumbline::audit
