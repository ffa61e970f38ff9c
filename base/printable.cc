#include "base/printable.h"

#include <algorithm>
#include <cstdio>

namespace plumbline {
namespace {

// Returns the length of the well-formed UTF-8 sequence at the start of `s` and its code point; 0 if
// there is none (Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
size_t DecodeUtf8(std::string_view s, char32_t* code) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    *code = lead;
    return 1;
  }
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || s.size() < length) return 0;
  char32_t value = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    value = (value << 6) | (byte(i) & 0x3F);
  }
  static constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kLeast[length] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return 0;
  *code = value;
  return length;
}

bool SteersTerminal(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x2069) || c == 0xFEFF;
}

void AppendEscaped(char32_t c, std::string* out) {
  if (c == '\n') {
    *out += "\\n";
  } else if (c == '\t') {
    *out += "\\t";
  } else if (c == '\r') {
    *out += "\\r";
  } else {
    char text[16];
    std::snprintf(text, sizeof text, c < 0x100 ? "\\x%02x" : "\\u%04x", static_cast<unsigned>(c));
    *out += text;
  }
}

std::string Sanitise(std::string_view text, bool escape_controls) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    char32_t code = 0;
    const size_t length = DecodeUtf8(text, &code);
    if (length == 0) {
      AppendEscaped(static_cast<unsigned char>(text[0]), &out);
      text.remove_prefix(1);
      continue;
    }
    if (escape_controls && SteersTerminal(code)) {
      AppendEscaped(code, &out);
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace

std::string Printable(std::string_view text) { return Sanitise(text, true); }

std::string TerminalSafeJson(std::string json) {
  // Characters beyond ASCII occur only in strings; within ASCII, the writer has escaped what is
  // necessary.
  const auto beyond = [](char c) { return static_cast<unsigned char>(c) >= 0x7F; };
  if (std::none_of(json.begin(), json.end(), beyond)) return json;
  std::string out;
  for (std::string_view rest = json; !rest.empty();) {
    char32_t code = 0;
    const size_t length = std::max<size_t>(DecodeUtf8(rest, &code), 1);
    if (code >= 0x7F && SteersTerminal(code)) {
      char text[16];
      std::snprintf(text, sizeof text, "\\u%04x", static_cast<unsigned>(code));
      out += text;
    } else {
      out.append(rest.substr(0, length));
    }
    rest.remove_prefix(length);
  }
  return out;
}

std::string ValidUtf8(std::string_view text) { return Sanitise(text, false); }

}  // namespace plumbline
