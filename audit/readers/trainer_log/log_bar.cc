// Parses progress bars in a line of a log.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/trainer_log/log_counter.h"

namespace plumbline::audit {

// Returns the bracket that closes the one at `open`. Skips nested brackets.
static size_t ClosingBracket(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t at = open; at < text.size(); ++at) {
    if (text[at] == '[') ++depth;
    if (text[at] == ']' && --depth == 0) return at;
  }
  return text.find(']', open);
}

// Reads "1.24k" of tqdm's unit_scale as 1240, of which three digits are known.
static std::optional<double> ScaledNumber(std::string_view text) {
  Trim(&text, kSpaces, kSpaces);
  const size_t prefix =
      text.empty() ? std::string_view::npos : std::string_view("kMG").find(text.back());
  if (prefix == std::string_view::npos) return NumberOf(text);
  static constexpr double kFactors[] = {1e3, 1e6, 1e9};
  text.remove_suffix(1);
  const std::optional<double> number = NumberOf(text);
  return number ? std::optional(std::round(*number * kFactors[prefix])) : number;
}

bool ReadBar(std::string_view line, LogMark* mark, std::string_view* inside) {
  const size_t bar = line.find('|', mark->begin + 2);
  if (bar == std::string_view::npos) return false;
  const std::string_view rest = line.substr(bar + 1);
  const size_t slash = rest.find('/');
  const size_t open = rest.find('[');
  if (slash == std::string_view::npos || open == std::string_view::npos || open < slash)
    return false;
  const std::optional<double> step = ScaledNumber(rest.substr(0, slash));
  const std::optional<double> total = ScaledNumber(rest.substr(slash + 1, open - slash - 1));
  if (!step || !total || !IsWhole(*step) || !IsWhole(*total)) return false;
  mark->step = static_cast<int64_t>(*step);
  mark->total = static_cast<int64_t>(*total);
  const size_t close = ClosingBracket(rest, open);
  *inside = rest.substr(open + 1, close == std::string_view::npos ? close : close - open - 1);
  mark->end = close == std::string_view::npos ? line.size() : bar + 1 + close + 1;
  return true;
}

// Returns where the signs begin in "12s - loss: 2.5" of older Keras or "1234ms 45us/step -
// loss=2.5" of TensorFlow.js; 0 for other lines.
static size_t TimeTaken(std::string_view line) {
  size_t at = 0;
  while (at < line.size() && IsPairDigit(line[at])) ++at;
  if (at == 0 || at == line.size()) return 0;
  const std::string_view rest = line.substr(at);
  const bool unit = rest.starts_with("s ") || rest.starts_with("ms ");
  const size_t dash = unit ? rest.find("- ") : std::string_view::npos;
  return dash != std::string_view::npos && dash <= 24 && rest[dash - 1] == ' ' ? at + dash : 0;
}

// Finds the last redraw of a bar in text copied from a notebook, without separators: "1/782
// \u2501... - loss: 2.4782/782 \u2501... - loss: 2.3". Returns the end of its "782/782"; 0 if there
// is none.
static size_t LastRedraw(std::string_view line, int64_t total) {
  const std::string whole = std::to_string(total);
  const size_t at = line.rfind(whole + "/" + whole + " \u2501");
  return at == std::string_view::npos ? 0 : at + 2 * whole.size() + 1;
}

size_t EpochDone(std::string_view line) {
  int64_t done = 0, total = 0;
  const char* to = line.data() + line.size();
  const char* begin = line.data() + std::min(line.size(), line.find_first_not_of(" \b"));
  const auto first = std::from_chars(begin, to, done);
  if (first.ec != std::errc()) return 0;
  if (first.ptr == to || *first.ptr != '/') return TimeTaken(line);
  const auto second = std::from_chars(first.ptr + 1, to, total);
  if (second.ec != std::errc() || done > total || done < 1) return 0;
  const auto at = static_cast<size_t>(second.ptr - line.data());
  const std::string_view rest = line.substr(at);
  if (rest.starts_with(" \u2501")) return LastRedraw(line, total);
  return done == total && (rest.starts_with(" [=") || rest.starts_with(" - ")) ? at : 0;
}

size_t UnfinishedBar(std::string_view line, int64_t* batch) {
  constexpr std::string_view kUnknown = "Unknown", kHeavy = " \u2501";
  const size_t redrawn = line.rfind('\b');
  const size_t begin = PassBlanks(line, redrawn == std::string_view::npos ? 0 : redrawn + 1);
  int64_t done = 0, total = 0;
  const size_t slash = ReadLogCount(line, begin, &done);
  if (slash == begin || slash >= line.size() || line[slash] != '/') return 0;
  const std::string_view second = line.substr(slash + 1);
  const bool open = second.starts_with(kUnknown);
  const size_t at = open ? slash + 1 + kUnknown.size() : ReadLogCount(line, slash + 1, &total);
  if (at == slash + 1 || (!open && (done >= total || done < 1))) return 0;
  const std::string_view rest = line.substr(at);
  const bool drawn = rest.starts_with(" [") && rest.size() > 2 &&
                     std::string_view("=>.").find(rest[2]) != std::string_view::npos;
  const bool heavy = rest.starts_with(kHeavy);
  if (!drawn && !heavy && !(open && rest.starts_with(' '))) return 0;
  *batch = done;
  if (!heavy) return at;
  // If redraws have no separators between them, takes the last one.
  std::string sign(line.substr(slash, at - slash));
  const size_t size = sign.size();
  return line.rfind(sign.append(kHeavy)) + size;
}

std::string_view WithoutPercent(std::string_view prefix) {
  while (!prefix.empty() && (IsPairDigit(prefix.back()) || prefix.back() == '.'))
    prefix.remove_suffix(1);
  return prefix;
}

}  // namespace plumbline::audit
