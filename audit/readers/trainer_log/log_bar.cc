// Progress bars in a line of a log.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>

#include "audit/readers/scalars/number_text.h"
#include "audit/readers/trainer_log/log_bytes.h"
#include "audit/readers/trainer_log/log_counter.h"

namespace plumbline::audit {

bool ReadBar(std::string_view line, LogMark* mark, std::string_view* inside) {
  const size_t bar = line.find('|', mark->begin + 2);
  if (bar == std::string_view::npos) return false;
  const std::string_view rest = line.substr(bar + 1);
  const size_t slash = rest.find('/');
  const size_t open = rest.find('[');
  if (slash == std::string_view::npos || open == std::string_view::npos || open < slash)
    return false;
  const std::optional<double> step = NumberOf(rest.substr(0, slash));
  const std::optional<double> total = NumberOf(rest.substr(slash + 1, open - slash - 1));
  if (!step || !total || !IsWhole(*step) || !IsWhole(*total)) return false;
  mark->step = static_cast<int64_t>(*step);
  mark->total = static_cast<int64_t>(*total);
  const size_t close = rest.find(']', open);
  *inside = rest.substr(open + 1, close == std::string_view::npos ? close : close - open - 1);
  mark->end = close == std::string_view::npos ? line.size() : bar + 1 + close + 1;
  return true;
}

size_t EpochDone(std::string_view line) {
  int64_t done = 0, total = 0;
  const char* to = line.data() + line.size();
  const char* begin = line.data() + std::min(line.size(), line.find_first_not_of(" \b"));
  const auto first = std::from_chars(begin, to, done);
  if (first.ec != std::errc() || first.ptr == to || *first.ptr != '/') return 0;
  const auto second = std::from_chars(first.ptr + 1, to, total);
  if (second.ec != std::errc() || done != total || done < 1) return 0;
  const auto at = static_cast<size_t>(second.ptr - line.data());
  const std::string_view rest = line.substr(at);
  return rest.starts_with(" [=") || rest.starts_with(" - ") || rest.starts_with(" \u2501") ? at : 0;
}

std::string_view WithoutPercent(std::string_view prefix) {
  while (!prefix.empty() && (IsPairDigit(prefix.back()) || prefix.back() == '.'))
    prefix.remove_suffix(1);
  return prefix;
}

}  // namespace plumbline::audit
