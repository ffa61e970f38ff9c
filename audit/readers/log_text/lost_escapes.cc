#include "audit/readers/log_text/lost_escapes.h"

#include <cstddef>
#include <utility>

namespace plumbline::audit {
namespace {

struct LostEscape {
  size_t begin = 0, end = 0;  // place in the line, in bytes
  bool marked = false;        // a text that replaces the escape byte is present
  bool joined = false;        // text follows directly, which is never so after a duration
};

bool IsCodeByte(char c) { return (c >= '0' && c <= '9') || c == ';'; }

// Returns the escape that begins with the '[' at `at`. If no colour begins there, `end` is 0.
LostEscape LostEscapeAt(std::string_view line, size_t at) {
  constexpr size_t kLongestCode = 20;
  size_t end = at + 1;
  while (end < line.size() && end - at < kLongestCode && IsCodeByte(line[end])) ++end;
  const bool code = end > at + 1 && end < line.size() && line[end] == 'm';
  const std::string_view before = line.substr(0, at);
  LostEscape found{at, 0, false, false};
  for (const std::string_view mark : {"^[", "#033", "\\033", "\\x1b", "\\e", "\xE2\x90\x9B"}) {
    if (!before.ends_with(mark)) continue;
    found.marked = true;
    found.begin = at - mark.size();
  }
  if (found.marked && end < line.size() && line[end] == 'K') found.end = end + 1;
  if (!code) return found;
  found.end = end + 1;
  found.joined = found.end < line.size() && line[found.end] != ' ' && line[found.end] != '<' &&
                 line[found.end] != ']' && line[found.end] != ',' && !IsCodeByte(line[found.end]);
  return found;
}

}  // namespace

std::string_view WithoutLostEscapes(std::string_view line, std::string* scratch) {
  constexpr size_t kFewest = 2;
  size_t count = 0;
  bool marked = false, joined = false;
  for (size_t at = line.find('['); at != std::string_view::npos; at = line.find('[', at + 1)) {
    const LostEscape found = LostEscapeAt(line, at);
    if (found.end == 0) continue;
    ++count;
    marked |= found.marked;
    joined |= found.joined;
  }
  if (!marked && !(count >= kFewest && joined)) return line;
  std::string plain;
  size_t kept = 0;
  for (size_t at = line.find('['); at != std::string_view::npos; at = line.find('[', at + 1)) {
    const LostEscape found = LostEscapeAt(line, at);
    if (found.end == 0 || found.begin < kept) continue;
    plain.append(line.substr(kept, found.begin - kept));
    kept = found.end;
    at = found.end - 1;
  }
  plain.append(line.substr(kept));
  *scratch = std::move(plain);
  return *scratch;
}

}  // namespace plumbline::audit
