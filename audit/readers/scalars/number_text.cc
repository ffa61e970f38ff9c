#include "audit/readers/scalars/number_text.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace plumbline::audit {
namespace {

std::string_view Stripped(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Returns infinity or 0 for a value outside of double's range. from_chars does not report which of
// the two it is.
double BeyondRange(std::string_view digits) {
  const size_t e = digits.find_first_of("eE");
  const bool small = e == std::string_view::npos
                         ? digits.find('.') != std::string_view::npos &&
                               digits.find_first_of("123456789") > digits.find('.')
                         : digits.substr(e + 1).starts_with('-');
  const double size = small ? 0 : std::numeric_limits<double>::infinity();
  return digits.starts_with('-') ? -size : size;
}

bool TakeWord(std::string_view* text, std::string_view word) {
  if (text->size() < word.size()) return false;
  for (size_t i = 0; i < word.size(); ++i) {
    const char c = (*text)[i];
    if ((c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c) != word[i]) return false;
  }
  text->remove_prefix(word.size());
  return true;
}

// Reads words that from_chars does not know: "1.#QNAN", "-1.#IND00", "1.#INF" of Microsoft's C
// library, and the sign of infinity. Returns the end; `from` if there is none.
const char* ScanOtherWord(const char* from, const char* to, double* value) {
  std::string_view text(from, static_cast<size_t>(to - from));
  const bool signed_one = !text.empty() && (text[0] == '-' || text[0] == '+');
  const double sign = signed_one && text[0] == '-' ? -1 : 1;
  if (signed_one) text.remove_prefix(1);
  if (TakeWord(&text, "\xE2\x88\x9E")) {
    *value = sign * std::numeric_limits<double>::infinity();
    return text.data();
  }
  // Handles YAML's ".nan" and ".inf".
  if (TakeWord(&text, ".NAN") || TakeWord(&text, ".INF")) {
    *value = (text.data()[-1] | 0x20) == 'n' ? std::numeric_limits<double>::quiet_NaN()
                                             : sign * std::numeric_limits<double>::infinity();
    return text.data();
  }
  if (!TakeWord(&text, "1.#")) return from;
  if (TakeWord(&text, "INF")) {
    *value = sign * std::numeric_limits<double>::infinity();
  } else if (TakeWord(&text, "QNAN") || TakeWord(&text, "SNAN") || TakeWord(&text, "IND")) {
    *value = std::numeric_limits<double>::quiet_NaN();
  } else {
    return from;
  }
  // Removes zeros that "%.6f" added.
  while (!text.empty() && text.front() == '0') text.remove_prefix(1);
  return text.data();
}

// Skips the number of bits at the end of Julia's "NaN32" and "Inf16", and the fraction of "nan.0"
// (bars of Lightning).
const char* PassType(const char* from, const char* to) {
  if (to - from < 2) return from;
  const std::string_view bits(from, 2);
  const bool ends = to - from == 2 || !((from[2] >= '0' && from[2] <= '9') || from[2] == '_' ||
                                        (from[2] | 0x20) >= 'a');
  return ends && (bits == "16" || bits == "32" || bits == "64" || bits == ".0") ? from + 2 : from;
}

}  // namespace

const char* ScanNumber(const char* from, const char* to, double* value) {
  // Nearly all numbers begin with a digit; then only "1.#" needs another check.
  const bool digit = from != to && *from >= '0' && *from <= '9';
  if (!digit || (to - from > 2 && from[2] == '#')) {
    if (const char* other = ScanOtherWord(from, to, value); other != from) return other;
  }
  const char* start = from;
  if (start != to && *start == '+') {
    ++start;
    if (start != to && *start == '-') return from;
  }
  const auto parsed = std::from_chars(start, to, *value);
  if (parsed.ec == std::errc())
    return std::isfinite(*value) ? parsed.ptr : PassType(parsed.ptr, to);
  if (parsed.ec != std::errc::result_out_of_range) return from;
  *value = BeyondRange({start, static_cast<size_t>(parsed.ptr - start)});
  return parsed.ptr;
}

std::optional<double> NumberOf(std::string_view text) {
  text = Stripped(text);
  if (text.size() >= 2 && text.front() == text.back() &&
      (text.front() == '"' || text.front() == '\''))
    text = Stripped(text.substr(1, text.size() - 2));
  if (text.empty()) return std::nullopt;
  double value = 0;
  const char* end = text.data() + text.size();
  const char* stop = ScanNumber(text.data(), end, &value);
  return stop == end ? std::optional(value) : std::nullopt;
}

double SignedZero(std::string_view text, double value) {
  if (value != 0) return value;
  return Stripped(text) == "0" || text.find_first_of("eE") != std::string_view::npos ? -0.0 : 0.0;
}

std::optional<int64_t> CountIn(std::string_view text) {
  constexpr size_t kMostDigits = 15;
  text = Stripped(text);
  const size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    const std::string_view total = text.substr(slash + 1);
    if (total.find('/') != std::string_view::npos || !CountIn(total)) return std::nullopt;
    text = Stripped(text.substr(0, slash));
  }
  int64_t count = 0;
  size_t digits = 0, group = 0;  // number of all digits, and of digits since the last comma
  bool grouped = false;
  for (const char c : text) {
    if (c == ',') {
      if (digits == 0 || (grouped ? group != 3 : group > 3)) return std::nullopt;
      grouped = true;
      group = 0;
      continue;
    }
    if (c < '0' || c > '9' || ++digits > kMostDigits) return std::nullopt;
    ++group;
    count = 10 * count + (c - '0');
  }
  if (digits == 0 || (grouped && group != 3)) return std::nullopt;
  return count;
}

bool IsWhole(double value) {
  return std::fabs(value) <= 9007199254740992.0 && value == std::floor(value);
}

}  // namespace plumbline::audit
