// Helpers for text output: safe strings, numbers, wrapping, colour. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"

namespace plumbline::audit {

struct TextStyle {
  bool colour = false;
  int width = 100;       // columns per line; at least 40
  bool unicode = false;  // block characters may be used
  bool verbose = false;  // lists passed verdicts too, and all lines of a finding
};

// Returns the style for a file descriptor: colour and width of a terminal, unless NO_COLOR is set
// to a non-empty value. If it is no terminal, or -1 (a file), the style is plain with 100 columns.
// Uses Unicode if the locale of the environment is UTF-8.
TextStyle StyleFor(int fd);

using plumbline::Printable;
using plumbline::TerminalSafeJson;
using plumbline::ValidUtf8;

// Returns the shortest text that reads back as the same double; integers without a fraction; "nan",
// "inf", "-inf".
std::string ExactNumber(double value);
// Returns six significant digits; integers below 1e15 in full.
std::string ShortNumber(double value);

// Returns "0", "0-3", "0-3, 7"; at most `limit` ranges, then "and N more".
std::string Ranges(std::vector<uint32_t> values, size_t limit = 8);

// Returns the word for a shell, in single quotes if needed. The result is printable: a control
// character is shown, and such a line must not be pasted.
std::string ShellWord(std::string_view word);

// Returns "1 file", "2 files".
std::string Plural(uint64_t count, std::string_view singular, std::string_view plural = {});

// Breaks printable text at spaces into lines of at most `width` columns.
std::vector<std::string> Wrap(std::string_view printable, size_t width);

// Returns rows of cells as lines. Each column is as wide as its content, after two spaces. The
// first column is left-aligned, the others right-aligned; if `last_is_words`, the last is
// left-aligned too.
std::string TextColumns(const std::vector<std::vector<std::string>>& rows, bool last_is_words);

enum class Ink { kPlain, kBold, kDim, kRed, kYellow, kCyan, kGreen };
// Returns `printable` in that colour. If the style has no colour, returns it unchanged.
std::string Inked(const TextStyle& style, Ink ink, std::string_view printable);

// The base of writers of a text in wrapped lines and headings, which `out_` holds.
class TextBlocks {
 protected:
  explicit TextBlocks(const TextStyle& style) : style_(style) {}

  void Line(size_t indent, const std::string& text);
  void Heading(const std::string& text);

  const TextStyle& style_;
  std::string out_;
};

}  // namespace plumbline::audit
