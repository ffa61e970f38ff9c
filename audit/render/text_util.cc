#include "audit/render/text_util.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace plumbline::audit {
namespace {

// Length of the well-formed UTF-8 sequence at the start of `s` and its code point; 0 when there is
// none (Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
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

// Code points, which is what most of our text takes in columns.
size_t Columns(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool IsWhole(double value) { return value == std::floor(value) && std::fabs(value) < 1e15; }

std::string Whole(double value) { return std::to_string(static_cast<int64_t>(value)); }

const char* NonFinite(double value) {
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

}  // namespace

TextStyle StyleFor(int fd) {
  TextStyle style;
  if (isatty(fd) == 0) return style;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  style.colour = (no_color == nullptr || *no_color == '\0') && term != nullptr &&
                 std::string_view(term) != "dumb";
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    style.width = std::clamp<int>(size.ws_col, 40, 120);
  }
  return style;
}

std::string Printable(std::string_view text) { return Sanitise(text, true); }

std::string ValidUtf8(std::string_view text) { return Sanitise(text, false); }

std::string ExactNumber(double value) {
  if (!std::isfinite(value)) return NonFinite(value);
  if (IsWhole(value)) return Whole(value);
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value);
  return std::string(text, end.ptr);
}

std::string ShortNumber(double value) {
  if (!std::isfinite(value)) return NonFinite(value);
  if (IsWhole(value)) return Whole(value);
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string Ranges(std::vector<uint32_t> values, size_t limit) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::string out;
  size_t ranges = 0;
  for (size_t i = 0; i < values.size();) {
    size_t last = i;
    while (last + 1 < values.size() && values[last + 1] == values[last] + 1) ++last;
    if (ranges++ == limit) return out + " and " + std::to_string(values.size() - i) + " more";
    if (!out.empty()) out += ", ";
    out += std::to_string(values[i]);
    if (last > i) out += "-" + std::to_string(values[last]);
    i = last + 1;
  }
  return out;
}

std::string Plural(uint64_t count, std::string_view singular, std::string_view plural) {
  std::string out = std::to_string(count) + " ";
  if (count == 1) return out.append(singular);
  return plural.empty() ? out.append(singular) + "s" : out.append(plural);
}

std::vector<std::string> Wrap(std::string_view printable, size_t width) {
  std::vector<std::string> lines;
  std::string line;
  size_t used = 0;
  while (!printable.empty()) {
    const size_t space = printable.find(' ');
    const std::string_view word = printable.substr(0, space);
    printable.remove_prefix(space == std::string_view::npos ? printable.size() : space + 1);
    const size_t columns = Columns(word);
    if (used > 0 && used + 1 + columns > width) {
      lines.push_back(std::move(line));
      line.clear();
      used = 0;
    }
    if (used > 0) {
      line += ' ';
      ++used;
    }
    line += word;
    used += columns;
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string Inked(const TextStyle& style, Ink ink, std::string_view printable) {
  if (!style.colour || ink == Ink::kPlain) return std::string(printable);
  static constexpr const char* kCodes[] = {"",           "\x1b[1m",  "\x1b[2m", "\x1b[1;31m",
                                           "\x1b[1;33m", "\x1b[36m", "\x1b[32m"};
  return std::string(kCodes[static_cast<size_t>(ink)]).append(printable) + "\x1b[0m";
}

}  // namespace plumbline::audit
