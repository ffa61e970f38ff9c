#include "audit/readers/log_text/log_wrapping.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "audit/readers/log_text/log_bytes.h"

namespace plumbline::audit {
namespace {

int HexValue(char c) {
  if (IsPairDigit(c)) return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

void AppendCodePoint(uint32_t code, std::string* out) {
  if (code < 0x80) {
    *out += static_cast<char>(code);
  } else if (code < 0x800) {
    *out += static_cast<char>(0xC0 | (code >> 6));
    *out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    *out += static_cast<char>(0xE0 | (code >> 12));
    *out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    *out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// Reads the code of "\\u001b". Returns false if there are not four digits.
bool ReadCode(std::string_view digits, uint32_t* code) {
  if (digits.size() < 4) return false;
  *code = 0;
  for (size_t i = 0; i < 4; ++i) {
    const int digit = HexValue(digits[i]);
    if (digit < 0) return false;
    *code = 16 * *code + static_cast<uint32_t>(digit);
  }
  return true;
}

// Unescapes up to the closing quote. Removes a newline at the end, and replaces other newlines by
// spaces.
bool Unescape(std::string_view text, std::string* out) {
  out->clear();
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') {
      while (out->ends_with(' ') || out->ends_with('\r')) out->pop_back();
      return true;
    }
    if (text[at] != '\\') {
      *out += text[at];
      continue;
    }
    if (++at == text.size()) return false;
    uint32_t code = 0;
    switch (text[at]) {
      case 'n':
        *out += ' ';
        break;
      case 't':
        *out += '\t';
        break;
      case 'r':
        *out += '\r';
        break;
      case 'u':
        if (!ReadCode(text.substr(at + 1), &code)) return false;
        AppendCodePoint(code, out);
        at += 4;
        break;
      default:
        *out += text[at];
    }
  }
  return false;
}

}  // namespace

std::string_view LineInJson(std::string_view line, std::string* scratch) {
  static constexpr std::string_view kKeys[] = {"\"log\"",  "\"message\"", "\"MESSAGE\"",
                                               "\"line\"", "\"msg\"",     "\"textPayload\"",
                                               "\"event\""};
  if (line.size() < 10) return {};
  // fluentd's file output has the time, the tag and the record between tabs.
  if (IsPairDigit(line[0])) {
    const size_t tab = line.find("\t{\"");
    if (tab == std::string_view::npos) return {};
    line.remove_prefix(tab + 1);
  }
  if (line[0] != '{' || line[1] != '"') return {};
  for (const std::string_view key : kKeys) {
    size_t at = line.find(key);
    if (at == std::string_view::npos) continue;
    // The quote must begin a key, not a text.
    const char before = line[line.find_last_not_of(" \t", at - 1)];
    at += key.size();
    while (at < line.size() && (IsSpaceByte(line[at]) || line[at] == ':')) ++at;
    if ((before != '{' && before != ',') || at >= line.size() || line[at] != '"') continue;
    if (Unescape(line.substr(at + 1), scratch) && !scratch->empty()) return *scratch;
  }
  return {};
}

std::string_view WithoutActor(std::string_view line) {
  constexpr size_t kLongest = 160;
  if (line.starts_with("LOG (")) {
    const size_t place = line.substr(0, kLongest).find(") ");
    const bool source = place != line.npos && line.substr(0, place).find(".cc:") != line.npos;
    return source ? line.substr(place + 2) : line;
  }
  if (!line.starts_with('(')) return line;
  const size_t close = line.substr(0, kLongest).find(") ");
  if (close == std::string_view::npos) return line;
  const size_t pid = line.substr(0, close).find(" pid=");
  return pid != std::string_view::npos && IsPairDigit(line[pid + 5]) ? line.substr(close + 2)
                                                                     : line;
}

std::string_view WithoutSource(std::string_view line, bool* had) {
  *had = false;
  size_t end = line.size();
  while (end > 0 && line[end - 1] == ' ') --end;
  size_t colon = end;
  while (colon > 0 && IsPairDigit(line[colon - 1])) --colon;
  if (colon == end || colon < 4 || line[colon - 1] != ':' || line.substr(colon - 4, 3) != ".py")
    return line;
  const size_t space = line.find_last_of(" \t", colon);
  if (space == std::string_view::npos) return line;
  *had = true;
  return line.substr(0, line.find_last_not_of(" \t", space) + 1);
}

std::string_view WithBars(std::string_view line, std::string* scratch) {
  constexpr std::string_view kBox = "\xE2\x94";
  const auto is_rule = [&](size_t at) {
    return at + 2 < line.size() && (line[at + 2] == '\x82' || line[at + 2] == '\x83');
  };
  size_t at = line.find('\xE2') == line.npos ? line.npos : line.find(kBox);
  while (at != std::string_view::npos && !is_rule(at)) at = line.find(kBox, at + 2);
  if (at == std::string_view::npos) return line;
  scratch->clear();
  for (size_t from = 0; from < line.size(); ++from) {
    const bool rule = line.substr(from, 2) == kBox && is_rule(from);
    scratch->push_back(rule ? '|' : line[from]);
    from += rule ? 2 : 0;
  }
  return *scratch;
}

}  // namespace plumbline::audit
