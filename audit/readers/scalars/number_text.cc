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

// from_chars says only that the value is beyond the range, not on which side.
double BeyondRange(std::string_view digits) {
  const size_t e = digits.find_first_of("eE");
  const bool small = e == std::string_view::npos
                         ? digits.find('.') != std::string_view::npos &&
                               digits.find_first_of("123456789") > digits.find('.')
                         : digits.substr(e + 1).starts_with('-');
  const double size = small ? 0 : std::numeric_limits<double>::infinity();
  return digits.starts_with('-') ? -size : size;
}

}  // namespace

const char* ScanNumber(const char* from, const char* to, double* value) {
  const char* start = from;
  if (start != to && *start == '+') {
    ++start;
    if (start != to && *start == '-') return from;
  }
  const auto parsed = std::from_chars(start, to, *value);
  if (parsed.ec == std::errc()) return parsed.ptr;
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

bool IsWhole(double value) {
  return std::fabs(value) <= 9007199254740992.0 && value == std::floor(value);
}

}  // namespace plumbline::audit
