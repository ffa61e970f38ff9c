#include "audit/readers/log_document/notebook.h"

#include <algorithm>
#include <utility>

#include "audit/readers/log_document/json_texts.h"

namespace plumbline::audit {
namespace {

using Kind = JsonCursor::Kind;

// Returns the text of the element whose tag begins at `at`, up to the next tag.
std::string_view ElementText(std::string_view html, size_t at) {
  const size_t begin = html.find('>', at);
  if (begin == std::string_view::npos) return {};
  return html.substr(begin + 1, html.find('<', begin) - begin - 1);
}

bool IsCell(std::string_view html, size_t at) {
  const std::string_view tag = html.substr(at, 3);
  const char next = at + 3 < html.size() ? html[at + 3] : '>';
  return (tag == "<td" || tag == "<th") && (next == '>' || next == ' ');  // "<thead" is not a cell
}

// Appends the rows of all tables of a page.
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

// Reads a multiline_string: one string, or a list of strings that are joined.
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

}  // namespace

std::string OutputOfNotebook(std::string_view json) {
  std::string out;
  JsonCursor cursor(json);
  EachOf(&cursor, "cells", Kind::kObject, [&] {
    EachOf(&cursor, "outputs", Kind::kObject, [&] { ReadOutput(&cursor, &out); });
    EndLine(&out);
  });
  return out;
}

}  // namespace plumbline::audit
