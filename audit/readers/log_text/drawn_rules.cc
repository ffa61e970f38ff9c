#include "audit/readers/log_text/drawn_rules.h"

#include <algorithm>
#include <iterator>

#include "audit/readers/log_text/log_bytes.h"

namespace plumbline::audit {
namespace {

// Returns true if the line begins with the bytes E2 94 and a byte of `of_94`, or E2 95 and a byte
// of `of_95`.
bool BeginsWithSign(std::string_view line, std::string_view of_94, std::string_view of_95) {
  const size_t at = line.find_first_not_of(" \t");
  return (line[at + 1] == '\x94' ? of_94 : of_95).find(line[at + 2]) != std::string_view::npos;
}

}  // namespace

bool IsDrawnRule(std::string_view line) {
  Trim(&line, kSpaces, kSpaces);
  if (line.size() < 9 || line.size() % 3 != 0) return false;
  for (size_t at = 0; at < line.size(); at += 3) {
    if (line[at] != '\xE2' || (line[at + 1] != '\x94' && line[at + 1] != '\x95')) return false;
  }
  return true;
}

bool IsTitledRule(std::string_view line) {
  Trim(&line, kSpaces, kSpaces);
  const std::string_view sides[][2] = {{"\u256D\u2500\u2500", "\u2500\u2500\u256E"},
                                       {"\u250C\u2500\u2500", "\u2500\u2500\u2510"},
                                       {"\u250F\u2501\u2501", "\u2501\u2501\u2513"}};
  return std::any_of(std::begin(sides), std::end(sides), [&](const auto& side) {
    return line.starts_with(side[0]) && line.ends_with(side[1]) && !IsDrawnRule(line);
  });
}

bool IsTopRule(std::string_view line) {
  return BeginsWithSign(line, "\x8C\x8F", "\x92\x93\x94\xAD");
}

bool IsInnerRule(std::string_view line) {
  return BeginsWithSign(line, "\x9C\xA0\xA3", "\x9E\x9F\xA0");
}

}  // namespace plumbline::audit
