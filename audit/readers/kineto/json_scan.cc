#include "audit/readers/kineto/json_scan.h"

#include <bit>
#include <charconv>
#include <cmath>

#include "audit/readers/input/json_cursor.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace plumbline::audit {
namespace {

// Returns the first quote, backslash or NUL from `at` on. The window's end has a NUL.
const char* EndOfPlainText(const char* at) {
#ifdef __SSE2__
  const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), nul = _mm_setzero_si128();
  for (;; at += 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i hit =
        _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, slash)),
                     _mm_cmpeq_epi8(block, nul));
    if (const auto mask = static_cast<unsigned>(_mm_movemask_epi8(hit)); mask != 0)
      return at + std::countr_zero(mask);
  }
#else
  while (*at != '"' && *at != '\\' && *at != '\0') ++at;
  return at;
#endif
}

// Returns the first quote, bracket, brace or NUL from `at` on.
const char* NextStructure(const char* at) {
#ifdef __SSE2__
  const __m128i quote = _mm_set1_epi8('"'), open = _mm_set1_epi8('{'), close = _mm_set1_epi8('}');
  const __m128i bit = _mm_set1_epi8(0x20), nul = _mm_setzero_si128();
  for (;; at += 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    // '[' and '{' differ only in this bit, as do ']' and '}'.
    const __m128i folded = _mm_or_si128(block, bit);
    const __m128i brackets =
        _mm_or_si128(_mm_cmpeq_epi8(folded, open), _mm_cmpeq_epi8(folded, close));
    const __m128i hit = _mm_or_si128(
        brackets, _mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, nul)));
    if (const auto mask = static_cast<unsigned>(_mm_movemask_epi8(hit)); mask != 0)
      return at + std::countr_zero(mask);
  }
#else
  while (*at != '"' && *at != '{' && *at != '}' && *at != '[' && *at != ']' && *at != '\0') ++at;
  return at;
#endif
}

constexpr double kMostNs = 2305843009213693952.0;  // 2^61

}  // namespace

bool JsonScan::Take(char c, const char* expected) {
  if (failed()) return false;
  if (Peek() != c) return Fail(expected);
  ++at_;
  return true;
}

bool JsonScan::NextOf(bool* first, char bracket, const char* expected) {
  if (failed()) return false;
  const bool began = *first;
  *first = false;
  const char next = Peek();
  if (next == bracket) {
    ++at_;
    return false;
  }
  if (began) return true;
  if (next != ',') return Fail(expected);
  ++at_;
  return true;
}

bool JsonScan::NextMember(bool* first, std::string_view* key) {
  if (!NextOf(first, '}', "',' or '}'")) return false;
  if (Peek() != '"') return Fail("a key in quotes");
  return String(key) && Take(':', "':'");
}

bool JsonScan::NextElement(bool* first) { return NextOf(first, ']', "',' or ']'"); }

bool JsonScan::String(std::string_view* raw) {
  if (!Take('"', "a string")) return false;
  const char* begin = at_;
  for (;;) {
    at_ = EndOfPlainText(at_);
    if (*at_ == '"') break;
    if (*at_ == '\0') return Fail("the end of a string");
    ++at_;  // skips the backslash
    if (at_ == end_) return Fail("the end of a string");
    ++at_;
  }
  *raw = {begin, static_cast<size_t>(at_ - begin)};
  ++at_;
  return true;
}

bool JsonScan::Scalar(std::string_view* raw) {
  if (failed()) return false;
  const char c = Peek();
  if (c == '"') return String(raw);
  const char* begin = at_;
  while (IsDigit(*at_) || (static_cast<unsigned char>((*at_ | 0x20) - 'a') < 26) || *at_ == '-' ||
         *at_ == '+' || *at_ == '.')
    ++at_;
  // At the end of the window, the value may be incomplete.
  if (at_ == begin || at_ == end_) return Fail("a value");
  *raw = {begin, static_cast<size_t>(at_ - begin)};
  return true;
}

bool JsonScan::Skip() {
  if (failed()) return false;
  const char c = Peek();
  if (c == '{' || c == '[') return SkipNested();
  std::string_view raw;
  return Scalar(&raw);
}

bool JsonScan::SkipNested() {
  uint64_t braces = 0;  // one bit per level: 1 for an object, 0 for a list
  for (int depth = 0;;) {
    at_ = NextStructure(at_);
    const char c = *at_;
    if (c == '\0') return Fail("the end of an object or list");
    if (c == '"') {
      std::string_view raw;
      if (!String(&raw)) return false;
      continue;
    }
    const bool brace = c == '{' || c == '}';
    if (c == '{' || c == '[') {
      if (depth == kMostDepth) return Fail("values nested at most 64 deep");
      braces = braces << 1 | (brace ? 1 : 0);
      ++depth;
    } else {
      if (((braces & 1) != 0) != brace) return Fail((braces & 1) != 0 ? "'}'" : "']'");
      braces >>= 1;
      --depth;
    }
    ++at_;
    if (depth == 0) return true;
  }
}

bool NanosecondsOf(std::string_view text, int64_t* ns) {
  const bool negative = text.starts_with('-');
  size_t at = negative ? 1 : 0;
  const size_t begin = at;
  uint64_t value = 0;
  while (at < text.size() && IsDigit(text[at]) && at - begin < 16)
    value = value * 10 + static_cast<uint64_t>(text[at++] - '0');
  if (at == begin) return false;
  int decimals = 0;
  if (at < text.size() && text[at] == '.') {
    for (++at; at < text.size() && IsDigit(text[at]); ++at) {
      if (decimals == 3) continue;
      value = value * 10 + static_cast<uint64_t>(text[at] - '0');
      ++decimals;
    }
  }
  if (at == text.size()) {
    for (; decimals < 3; ++decimals) value *= 10;
    if (value > static_cast<uint64_t>(kMostNs)) return false;
    *ns = negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
    return true;
  }
  // A number with an exponent or more digits is parsed as a double.
  double real = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), real);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (!(std::fabs(real * 1000) <= kMostNs)) return false;
  *ns = static_cast<int64_t>(std::llround(real * 1000));
  return true;
}

bool WholeOf(std::string_view text, int64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace plumbline::audit
