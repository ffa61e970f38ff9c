// What every text for people needs: safe strings, numbers, wrapping, colour. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"

namespace plumbline::audit {

struct TextStyle {
  bool colour = false;
  int width = 100;       // columns a line may take; at least 40
  bool unicode = false;  // block characters may be drawn with
  bool verbose = false;  // what passed is listed, too
};

// The style for a file descriptor: colour and width of a terminal, unless NO_COLOR is set (to
// anything but nothing); plain and 100 columns otherwise, also for -1 (a file). Unicode where the
// locale of the environment is UTF-8.
TextStyle StyleFor(int fd);

using plumbline::Printable;
using plumbline::TerminalSafeJson;
using plumbline::ValidUtf8;

// Shortest text that reads back as the same double, integers without a fraction; "nan", "inf",
// "-inf".
std::string ExactNumber(double value);
// For people: six significant digits, integers below 1e15 whole.
std::string ShortNumber(double value);

// "0", "0-3", "0-3, 7"; at most `limit` ranges, then "and N more".
std::string Ranges(std::vector<uint32_t> values, size_t limit = 8);

// As one word of a shell's line: in single quotes where it must be. Printable, so that a line with
// a control character shows it and is not to be pasted.
std::string ShellWord(std::string_view word);

// "1 file", "2 files".
std::string Plural(uint64_t count, std::string_view singular, std::string_view plural = {});

// Printable text broken at spaces into lines of at most `width` columns.
std::vector<std::string> Wrap(std::string_view printable, size_t width);

// Rows of cells as lines, two blanks before each, columns as wide as what is in them. The first
// column is flush left, the others right, but for the last where it holds words.
std::string TextColumns(const std::vector<std::vector<std::string>>& rows, bool last_is_words);

enum class Ink { kPlain, kBold, kDim, kRed, kYellow, kCyan, kGreen };
// `printable` in that ink, or unchanged when the style has no colour.
std::string Inked(const TextStyle& style, Ink ink, std::string_view printable);

}  // namespace plumbline::audit
