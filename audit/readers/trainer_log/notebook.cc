#include "audit/readers/trainer_log/notebook.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {
namespace {

using Kind = JsonCursor::Kind;

void EndLine(std::string* out) {
  if (!out->empty() && !out->ends_with('\n')) *out += '\n';
}

// The text of the tag's element that begins at `at`, up to the next tag.
std::string_view ElementText(std::string_view html, size_t at) {
  const size_t begin = html.find('>', at);
  if (begin == std::string_view::npos) return {};
  return html.substr(begin + 1, html.find('<', begin) - begin - 1);
}

bool IsCell(std::string_view html, size_t at) {
  const std::string_view tag = html.substr(at, 3);
  const char next = at + 3 < html.size() ? html[at + 3] : '>';
  return (tag == "<td" || tag == "<th") && (next == '>' || next == ' ');  // "<thead" is none
}

// The rows of the tables of a page.
void AppendTables(std::string_view html, std::string* out) {
  constexpr std::string_view kRow = "<tr", kRowEnd = "</tr>";
  for (size_t row = html.find(kRow); row != std::string_view::npos; row = html.find(kRow, row)) {
    const size_t end = std::min(html.find(kRowEnd, row), html.size());
    EndLine(out);
    bool first = true;
    for (; row < end; row = html.find('<', row + 1)) {
      if (!IsCell(html, row)) continue;
      if (!first) *out += '\t';
      first = false;
      std::string_view text = ElementText(html, row);
      while (text.starts_with(' ') || text.starts_with('\n')) text.remove_prefix(1);
      while (text.ends_with(' ') || text.ends_with('\n')) text.remove_suffix(1);
      out->append(text);
    }
    EndLine(out);
    row = end;
  }
}

// A multiline_string: one string, or a list of strings that belong together.
bool ReadText(JsonCursor* cursor, std::string* text) {
  text->clear();
  if (cursor->Peek() == Kind::kString) return cursor->ReadString(text);
  if (cursor->Peek() != Kind::kList) return cursor->Skip();
  if (!cursor->EnterList()) return false;
  std::string line;
  while (cursor->NextElement()) {
    const bool read = cursor->Peek() == Kind::kString ? cursor->ReadString(&line) : cursor->Skip();
    if (!read) return false;
    text->append(std::exchange(line, ""));
  }
  return !cursor->failed();
}

void ReadData(JsonCursor* cursor, std::string* out) {
  std::string html;
  if (!cursor->EnterObject()) return;
  for (std::string_view key; cursor->NextMember(&key);) {
    if (key == "text/html") {
      ReadText(cursor, &html);
      AppendTables(html, out);
    } else if (!cursor->Skip()) {
      return;
    }
  }
}

void ReadOutput(JsonCursor* cursor, std::string* out) {
  std::string text;
  if (!cursor->EnterObject()) return;
  for (std::string_view key; cursor->NextMember(&key);) {
    if (key == "text") {
      ReadText(cursor, &text);
      out->append(text);
    } else if (key == "data" && cursor->Peek() == Kind::kObject) {
      ReadData(cursor, out);
    } else {
      cursor->Skip();
    }
    if (cursor->failed()) return;
  }
}

// Each element of a list of objects that is a member of an object.
template <typename Read>
void EachOf(JsonCursor* cursor, std::string_view member, const Read& read) {
  if (cursor->Peek() != Kind::kObject || !cursor->EnterObject()) return;
  for (std::string_view key; cursor->NextMember(&key);) {
    if (key != member || cursor->Peek() != Kind::kList) {
      if (!cursor->Skip()) return;
      continue;
    }
    if (!cursor->EnterList()) return;
    while (cursor->NextElement()) {
      if (cursor->Peek() == Kind::kObject) {
        read();
      } else {
        cursor->Skip();
      }
      if (cursor->failed()) return;
    }
  }
}

// The texts of an object's message.
void ReadMessage(JsonCursor* cursor, std::string* out) {
  static constexpr std::string_view kKeys[] = {"message", "textPayload", "log", "line", "msg"};
  std::string text;
  if (!cursor->EnterObject()) return;
  for (std::string_view key; cursor->NextMember(&key);) {
    const bool is = cursor->Peek() == Kind::kString &&
                    std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
    if (!(is ? cursor->ReadString(&text) : cursor->Skip())) return;
    if (!is) continue;
    out->append(std::exchange(text, ""));
    EndLine(out);
  }
}

}  // namespace

std::string LinesOfExport(std::string_view json) {
  std::string out;
  JsonCursor cursor(json);
  if (cursor.Peek() != Kind::kList) {
    EachOf(&cursor, "events", [&] { ReadMessage(&cursor, &out); });
    return out;
  }
  if (!cursor.EnterList()) return out;
  while (cursor.NextElement()) {
    if (cursor.Peek() == Kind::kObject) {
      ReadMessage(&cursor, &out);
    } else {
      cursor.Skip();
    }
    if (cursor.failed()) break;
  }
  return out;
}

LogDocument DocumentOf(std::string_view path, std::string_view head) {
  if (path.ends_with(".ipynb")) return LogDocument::kNotebook;
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (!path.ends_with(".json") || first == std::string_view::npos) return LogDocument::kNone;
  const std::string_view begin = head.substr(first, 64);
  const bool events = begin[0] == '{' && begin.find("\"events\"") != std::string_view::npos;
  const bool list = begin[0] == '[' && begin.find('{') != std::string_view::npos;
  return (events || list) && !LinesOfExport(head).empty() ? LogDocument::kExport
                                                          : LogDocument::kNone;
}

std::string LinesOf(LogDocument document, std::string_view json) {
  return document == LogDocument::kNotebook ? OutputOfNotebook(json) : LinesOfExport(json);
}

std::string OutputOfNotebook(std::string_view json) {
  std::string out;
  JsonCursor cursor(json);
  EachOf(&cursor, "cells", [&] {
    EachOf(&cursor, "outputs", [&] { ReadOutput(&cursor, &out); });
    EndLine(&out);
  });
  return out;
}

}  // namespace plumbline::audit
