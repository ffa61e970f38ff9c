#include "audit/readers/rollout/batch_rows.h"

#include <algorithm>

#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {
namespace {

using Kind = JsonCursor::Kind;
using Column = RolloutColumn;

// Returns the texts of a list's elements, or nothing if the text is not a list.
std::vector<std::string_view> ElementsOf(std::string_view text) {
  std::vector<std::string_view> elements;
  JsonCursor cursor(text);
  if (cursor.Peek() != Kind::kList || !cursor.EnterList()) return elements;
  while (cursor.NextElement()) {
    cursor.Peek();
    const size_t begin = cursor.offset();
    if (!cursor.Skip()) return {};
    elements.push_back(text.substr(begin, cursor.offset() - begin));
  }
  return elements;
}

// Returns true if each row is a list of numbers, or null.
bool AreListsOfNumbers(const std::vector<std::string_view>& rows) {
  return std::all_of(rows.begin(), rows.end(), [](std::string_view row) {
    JsonCursor cursor(row);
    if (cursor.Peek() == Kind::kNull) return true;
    if (cursor.Peek() != Kind::kList || !cursor.EnterList()) return false;
    if (!cursor.NextElement()) return !cursor.failed();
    const Kind kind = cursor.Peek();
    return kind != Kind::kList && kind != Kind::kObject && kind != Kind::kString;
  });
}

bool IsPerToken(Column column) {
  return column == Column::kTokens || column == Column::kRolloutLogprobs ||
         column == Column::kTrainLogprobs;
}

}  // namespace

bool BatchRows::Take(std::string_view text, const ColumnMap& map) {
  *this = BatchRows();
  if (Read(text, map)) return true;
  *this = BatchRows();
  return false;
}

bool BatchRows::Read(std::string_view text, const ColumnMap& map) {
  bool tokens = false;
  JsonCursor cursor(text);
  if (map.token_records || cursor.Peek() != Kind::kObject || !cursor.EnterObject()) return false;
  for (std::string_view name; cursor.NextMember(&name);) {
    const auto source = std::find_if(map.columns.begin(), map.columns.end(),
                                     [&](const ColumnSource& s) { return s.path.front() == name; });
    const Kind kind = cursor.Peek();
    const size_t begin = cursor.offset();
    if (!cursor.Skip()) return false;
    if (source == map.columns.end()) continue;
    const std::string_view value = text.substr(begin, cursor.offset() - begin);
    const std::string_view key = source->path.front();
    if (kind == Kind::kObject) return false;
    if (kind != Kind::kList) {
      keys_.push_back(key);
      values_.push_back(value);
      continue;
    }
    Parts rows = ElementsOf(value);
    if (rows.empty() || (rows_ > 0 && rows.size() != rows_)) return false;
    if (IsPerToken(source->column)) {
      if (!AreListsOfNumbers(rows)) return false;
      tokens = true;
    }
    rows_ = rows.size();
    lists_.emplace_back(key, std::move(rows));
  }
  return tokens && !cursor.failed() && cursor.AtEnd();
}

bool BatchRows::Next(std::string* record) {
  if (row_ >= rows_) return false;
  record->assign("{");
  const auto add = [&](std::string_view key, std::string_view value) {
    if (record->size() > 1) *record += ", ";
    record->append("\"").append(key).append("\": ").append(value);
  };
  for (size_t i = 0; i < keys_.size(); ++i) add(keys_[i], values_[i]);
  for (const auto& [key, rows] : lists_) add(key, rows[row_]);
  *record += "}";
  ++row_;
  return true;
}

}  // namespace plumbline::audit
