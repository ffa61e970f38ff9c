#include "audit/readers/trainer_log/log_heading.h"

#include <algorithm>
#include <iterator>

#include "audit/readers/log_text/log_bytes.h"

namespace plumbline::audit {

size_t LogHeading::SameBytes(std::string_view line) const {
  const std::string_view prefix = prefix_;
  size_t same = 0;
  while (same < std::min(prefix.size(), line.size()) &&
         (prefix[same] == line[same] || (IsPairDigit(prefix[same]) && IsPairDigit(line[same]))))
    ++same;
  return same;
}

bool LogHeading::BeginsWith(std::string_view text) const { return SameBytes(text) == text.size(); }

size_t LogHeading::EndIn(std::string_view line) const {
  static constexpr std::string_view kParts[] = {": ", "] ", "- ", "| ", ") ", "  "};
  const size_t same = SameBytes(line);
  if (same == prefix_.size()) return same;
  // If the heading has its own signs ("**** Epoch 3"), keeps only the text of the logger before
  // them.
  size_t end = 0;
  for (const std::string_view part : kParts) {
    const size_t at = line.substr(0, same).rfind(part);
    if (at != std::string_view::npos) end = std::max(end, at + part.size());
  }
  return end;
}

}  // namespace plumbline::audit
