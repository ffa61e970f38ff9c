#include "audit/render/text_util.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace plumbline::audit {
namespace {

// Returns the number of code points, which approximates the number of columns.
size_t Columns(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool IsWhole(double value) { return value == std::floor(value) && std::fabs(value) < 1e15; }

std::string Whole(double value) { return std::to_string(static_cast<int64_t>(value)); }

const char* NonFinite(double value) {
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

// Returns true if the locale is UTF-8. Like the C library, uses the first variable that is set.
bool Utf8Locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string lower;
    for (const char c : std::string_view(value)) {
      if (c != '-') lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return lower.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

TextStyle StyleFor(int fd) {
  TextStyle style;
  style.unicode = Utf8Locale();
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

std::string ShellWord(std::string_view word) {
  static constexpr std::string_view kPlain = "_-+=./:,@%";
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           kPlain.find(c) != std::string_view::npos;
  });
  if (plain) return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return Printable(out + "'");
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

std::string TextColumns(const std::vector<std::vector<std::string>>& rows, bool last_is_words) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = "  ";
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string gap(widths[c] - row[c].size(), ' ');
      const bool left = c == 0 || (last_is_words && c + 1 == row.size());
      line += (c == 0 ? "" : "  ") + (left ? row[c] + gap : gap + row[c]);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

void TextBlocks::Line(size_t indent, const std::string& text) {
  for (const std::string& line : Wrap(Printable(text), static_cast<size_t>(style_.width) - indent))
    out_ += std::string(indent, ' ') + line + "\n";
}

void TextBlocks::Heading(const std::string& text) {
  out_ += "\n" + Inked(style_, Ink::kBold, text) + "\n";
}

}  // namespace plumbline::audit
