#include "agent/facade/text.h"

#include <cstdlib>
#include <cstring>

#include "plumbline/sites.h"

namespace plumbline::facade {
namespace {

struct Lead {
  int continuation;    // bytes that follow
  unsigned char low;   // bounds of the first of them: no overlong forms, no surrogates,
  unsigned char high;  // nothing above U+10FFFF
};

bool ClassifyLead(unsigned char c, Lead* lead) {
  if (c < 0x80) return *lead = {0, 0, 0}, true;
  if (c >= 0xC2 && c <= 0xDF) return *lead = {1, 0x80, 0xBF}, true;
  if (c == 0xE0) return *lead = {2, 0xA0, 0xBF}, true;
  if (c == 0xED) return *lead = {2, 0x80, 0x9F}, true;
  if (c >= 0xE1 && c <= 0xEF) return *lead = {2, 0x80, 0xBF}, true;
  if (c == 0xF0) return *lead = {3, 0x90, 0xBF}, true;
  if (c >= 0xF1 && c <= 0xF3) return *lead = {3, 0x80, 0xBF}, true;
  if (c == 0xF4) return *lead = {3, 0x80, 0x8F}, true;
  return false;
}

bool IsUtf8(const char* text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text);
  while (*p != 0) {
    Lead lead;
    if (!ClassifyLead(*p++, &lead)) return false;
    for (int i = 0; i < lead.continuation; ++i, ++p) {
      const unsigned char low = i == 0 ? lead.low : 0x80;
      const unsigned char high = i == 0 ? lead.high : 0xBF;
      if (*p < low || *p > high) return false;  // the closing NUL too
    }
  }
  return true;
}

}  // namespace

const char* EndOfFile(const char* file) {
  const size_t bytes = strlen(file);
  const char* end = bytes > PLUMBLINE_MAX_FILE ? file + bytes - PLUMBLINE_MAX_FILE : file;
  while ((static_cast<unsigned char>(*end) & 0xC0) == 0x80) ++end;
  return end;
}

NameFault CheckName(const char* name) {
  if (name == nullptr || *name == '\0') return NameFault::kMissing;
  if (strnlen(name, kMaxNameBytes + 1) > kMaxNameBytes) return NameFault::kTooLong;
  return IsUtf8(name) ? NameFault::kNone : NameFault::kNotUtf8;
}

const char* Describe(NameFault fault) {
  switch (fault) {
    case NameFault::kNone:
      return "is a name";
    case NameFault::kMissing:
      return "is missing";
    case NameFault::kTooLong:
      return "is longer than 512 bytes";
    case NameFault::kNotUtf8:
      return "is not UTF-8";
  }
  return "?";
}

uint64_t HashName(const char* name, uint64_t seed) {
  uint64_t h = seed;
  for (;; ++name) {
    h = (h ^ static_cast<unsigned char>(*name)) * 0x100000001b3u;
    if (*name == '\0') return h;
  }
}

char* CopyName(const char* name) {
  const size_t bytes = strlen(name) + 1;
  auto* copy = static_cast<char*>(malloc(bytes));
  if (copy != nullptr) memcpy(copy, name, bytes);
  return copy;
}

}  // namespace plumbline::facade
