#include "audit/readers/log_text/log_literal.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/log_text/log_words.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {
namespace {

constexpr size_t kFewestRows = 2;
constexpr size_t kMostRows = 1 << 20, kMostLists = 1024;

bool IsQuote(char c) { return c == '\'' || c == '"'; }
bool Opens(char c) { return c == '(' || c == '[' || c == '{'; }
bool Closes(char c) { return c == ')' || c == ']' || c == '}'; }

// Returns the end of the value at `at`: the next comma or closing bracket outside of its own
// brackets and texts. If the value is truncated, returns the text's size.
size_t EndOfValue(std::string_view text, size_t at) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (IsQuote(c)) {
      for (++at; at < text.size() && text[at] != c; ++at) at += text[at] == '\\' ? 1 : 0;
    } else if (depth == 0 && (c == ',' || Closes(c))) {
      return at;
    } else if (Opens(c)) {
      ++depth;
    } else if (Closes(c)) {
      --depth;
    }
  }
  return text.size();
}

// Returns the name before a value, without its quotes; empty if there is none. Moves *at to the
// value.
std::string_view KeyAt(std::string_view text, size_t* at) {
  const size_t begin = PassBlanks(text, *at);
  if (begin >= text.size() || !IsQuote(text[begin])) return {};
  const size_t close = text.find(text[begin], begin + 1);
  if (close == std::string_view::npos || close - begin > kMostNameBytes) return {};
  const size_t colon = PassBlanks(text, close + 1);
  if (colon >= text.size() || text[colon] != ':') return {};
  *at = PassBlanks(text, colon + 1);
  return text.substr(begin + 1, close - begin - 1);
}

// Returns the dictionaries of a list from `at` on: "{...}, {...}]".
std::vector<std::string> Dictionaries(std::string_view text, size_t at) {
  std::vector<std::string> rows;
  size_t trained = 0;
  while (at < text.size() && text[at] == '{' && rows.size() < kMostRows) {
    const size_t end = EndOfValue(text, at);
    if (end == text.size() && !text.ends_with('}')) break;  // the value is truncated
    rows.emplace_back(text.substr(at, end - at));
    trained += rows.back().find("loss") != std::string::npos ? 1 : 0;
    if (end >= text.size() || text[end] != ',') break;
    at = PassBlanks(text, end + 1);
  }
  if (trained < kFewestRows) rows.clear();
  return rows;
}

// Returns the elements of "[2.5, 2.3]", "array([2.5, nan], dtype=float32)" or "(2.5, 2.3)". Returns
// nullopt for anything else, and for an abbreviated list ("...").
std::optional<std::vector<std::string_view>> ElementsOf(std::string_view value) {
  Trim(&value, kSpaces, kSpaces);
  const size_t open = value.find_first_of("[(");
  if (open == std::string_view::npos || value.find("...") != std::string_view::npos)
    return std::nullopt;
  size_t first = open;
  // A name before the bracket is that of a type, whose first argument is the list.
  if (open > 0 && value[open] == '(') first = PassBlanks(value, open + 1);
  if (first >= value.size() || (value[first] != '[' && first != 0)) return std::nullopt;
  std::vector<std::string_view> elements;
  for (size_t at = first + 1; at < value.size() && elements.size() < kMostRows;) {
    const size_t end = EndOfValue(value, at);
    std::string_view element = value.substr(at, end - at);
    Trim(&element, kSpaces, kSpaces);
    if (element.empty() && end < value.size() && Closes(value[end])) return elements;
    elements.push_back(element);
    if (end >= value.size()) return std::nullopt;
    if (Closes(value[end])) return elements;
    at = end + 1;
  }
  return std::nullopt;
}

// Returns true for a number, with or without a type around it; false for texts and lists.
bool IsScalar(std::string_view element) {
  if (NumberOf(element) || element == "None") return true;
  return element.ends_with(')') && IsPairLetter(element[0]) && element.find('[') == element.npos;
}

struct LiteralList {
  std::string_view name;
  std::vector<std::string_view> elements;
};

// Returns the lists of the dictionary that begins at `at`.
std::vector<LiteralList> ListsAt(std::string_view text, size_t at) {
  std::vector<LiteralList> lists;
  for (++at; at < text.size() && lists.size() < kMostLists;) {
    const std::string_view key = KeyAt(text, &at);
    if (key.empty()) return {};
    const size_t end = EndOfValue(text, at);
    if (end == text.size()) return {};
    auto elements = ElementsOf(text.substr(at, end - at));
    if (!elements || !std::all_of(elements->begin(), elements->end(), IsScalar)) return {};
    lists.push_back({key, std::move(*elements)});
    if (text[end] == '}') return lists;
    at = end + 1;
  }
  return {};
}

std::vector<std::string> RowsOfLists(const std::vector<LiteralList>& lists) {
  size_t longest = 0;
  bool training = false, stepped = false;
  for (const LiteralList& list : lists) {
    longest = std::max(longest, list.elements.size());
    training |= HasTrainingWord(list.name);
    stepped |= StepNameRank(list.name) >= 0 && !IsEpochName(list.name);
  }
  if (!training || longest < kFewestRows) return {};
  std::vector<std::string> rows(longest);
  for (size_t i = 0; i < longest; ++i) {
    std::string& row = rows[i];
    if (!stepped) row.append("'step': ").append(std::to_string(i + 1));
    for (const LiteralList& list : lists) {
      if (i >= list.elements.size()) continue;
      row.append(row.empty() ? "'" : ", '").append(list.name).append("': ");
      row.append(list.elements[i]);
    }
    row.insert(0, "{");
    row.push_back('}');
  }
  return rows;
}

// Returns true if a word before the literal states a step. Then the line is a separate row.
bool HasStepBefore(std::string_view line, size_t at) {
  const std::optional<LogMark> mark = FindMark(line.substr(0, at));
  return mark && mark->kind == LogMark::Kind::kStep;
}

}  // namespace

std::vector<std::string> RowsOfLiteral(std::string_view line) {
  for (size_t at = line.find('{'); at < line.size(); at = line.find('{', at + 1)) {
    if (at + 1 >= line.size() || !IsQuote(line[at + 1])) continue;
    const bool listed = at > 0 && (line[at - 1] == '[' || line[at - 1] == '(');
    std::vector<std::string> rows;
    if (listed) rows = Dictionaries(line, at);
    if (rows.empty()) rows = RowsOfLists(ListsAt(line, at));
    if (!rows.empty() && HasStepBefore(line, at)) rows.clear();
    return rows;
  }
  return {};
}

}  // namespace plumbline::audit
