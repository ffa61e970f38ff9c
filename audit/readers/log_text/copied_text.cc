#include "audit/readers/log_text/copied_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <system_error>

#include "audit/readers/log_text/log_bytes.h"

namespace plumbline::audit {
namespace {

struct CopiedSign {
  std::string_view copied, plain;
};
constexpr CopiedSign kCopiedSigns[] = {
    {"\u00a0", " "},  {"\u202f", " "},  {"\u3000", " "},  {"\u200b", ""},   {"\ufeff", ""},
    {"\u2018", "'"},  {"\u2019", "'"},  {"\u201a", "'"},  {"\u201b", "'"},  {"\u201c", "\""},
    {"\u201d", "\""}, {"\u201e", "\""}, {"\u201f", "\""}, {"\u2212", "-"},  {"\u3002", ". "},
    {"\u3001", ", "}, {"\uff0c", ", "}, {"\uff1a", ": "}, {"\uff1b", "; "}, {"\uff08", " ("},
    {"\uff09", ") "}, {"\u2022", " "},  {"\u25cf", " "},  {"\u25aa", " "},  {"\u2023", " "}};
constexpr CopiedSign kEntities[] = {{"&nbsp;", " "}, {"&quot;", "\""}, {"&apos;", "'"},
                                    {"&lt;", "<"},   {"&gt;", ">"},    {"&amp;", "&"}};
constexpr Bytes kFirst("\xC2\xE2\xE3\xEF&*");

// Decodes "&#39;", "&#x27;" or "&#160;" at `at` and appends the character. Returns its end, or `at`
// if there is none.
size_t TakeNumbered(std::string_view line, size_t at, std::string* out) {
  constexpr size_t kLongest = 8;
  constexpr uint32_t kNoBreak = 160, kAscii = 128;
  const size_t end = line.substr(at, kLongest).find(';');
  if (end == std::string_view::npos || !line.substr(at).starts_with("&#")) return at;
  std::string_view digits = line.substr(at + 2, end - 2);
  const bool hex = digits.starts_with('x') || digits.starts_with('X');
  if (hex) digits.remove_prefix(1);
  uint32_t code = 0;
  const char* to = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), to, code, hex ? 16 : 10);
  if (read.ec != std::errc() || read.ptr != to) return at;
  if (code == kNoBreak) code = ' ';
  if (code < ' ' || code >= kAscii) return at;
  out->push_back(static_cast<char>(code));
  return at + end + 1;
}

// Appends the ASCII sign that the character at `at` replaces. Returns its end, or `at` if there is
// none.
size_t TakeCopied(std::string_view line, size_t at, std::string* out) {
  const std::string_view rest = line.substr(at);
  if (rest[0] == '&') {
    if (const size_t end = TakeNumbered(line, at, out); end != at) return end;
  }
  // Markdown: "**nan**".
  if (rest[0] == '*') {
    const bool opens = rest.size() > 2 && rest.starts_with("**") &&
                       (IsPairDigit(rest[2]) || rest.substr(2).starts_with("nan"));
    const bool closes = rest.starts_with("**") && at > 0 &&
                        (IsPairDigit(line[at - 1]) || line.substr(0, at).ends_with("nan"));
    return opens || closes ? at + 2 : at;
  }
  const auto take = [&](const auto& signs) {
    const auto* found = std::find_if(std::begin(signs), std::end(signs), [&](const auto& sign) {
      return rest.starts_with(sign.copied);
    });
    if (found == std::end(signs)) return at;
    out->append(found->plain);
    return at + found->copied.size();
  };
  if (const size_t end = rest[0] == '&' ? take(kEntities) : take(kCopiedSigns); end != at)
    return end;
  // Handles spaces of other widths, U+2000 to U+200A, and full-width ASCII, U+FF01 to U+FF5E.
  if (rest.size() < 3) return at;
  const auto second = static_cast<unsigned char>(rest[1]);
  const auto third = static_cast<unsigned char>(rest[2]);
  if (rest[0] == '\xE2' && second == 0x80 && third <= 0x8A) {
    out->push_back(' ');
    return at + 3;
  }
  if (rest[0] != '\xEF' || (second != 0xBC && second != 0xBD) || third < 0x80) return at;
  const int code = (second - 0xBC) * 0x40 + (third - 0x80) + 0x20;
  if (code <= ' ' || code > '~') return at;
  out->push_back(static_cast<char>(code));
  return at + 3;
}

bool HasCopiedSign(std::string_view line) {
  constexpr size_t kFar = 1024;
  std::string scratch;
  for (size_t at = 0; at < std::min(line.size(), kFar); ++at) {
    if (kFirst[line[at]] && TakeCopied(line, at, &scratch) != at) return true;
  }
  return false;
}

}  // namespace

CopiedText CopiedIn(std::string_view text) {
  constexpr size_t kFewestQuoted = 3, kFewestSigns = 2;
  size_t lines = 0, quoted = 0, signs = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t first = PassBlanks(line, 0);
    if (first == line.size()) continue;
    ++lines;
    quoted += line[first] == '>' ? 1 : 0;
    signs += signs < kFewestSigns && HasCopiedSign(line) ? 1 : 0;
  }
  return {signs >= kFewestSigns, quoted >= kFewestQuoted && 2 * quoted >= lines};
}

std::string_view WithoutCopied(std::string_view line, CopiedText text, std::string* scratch) {
  static constexpr Bytes kQuote(" \t>");
  if (text.quoted && line.find('>') == PassBlanks(line, 0)) Trim(&line, kQuote, Bytes(""));
  if (!text.signs) return line;
  scratch->clear();
  for (size_t at = 0; at < line.size();) {
    const size_t end = kFirst[line[at]] ? TakeCopied(line, at, scratch) : at;
    if (end == at) scratch->push_back(line[at++]);
    at = std::max(at, end);
  }
  return *scratch;
}

}  // namespace plumbline::audit
