// Reads numbers and lists of numbers for JsonCursor. This code takes most of the time of reading
// JSON.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// The smallest number with 15 digits. Decimals with fewer digits survive conversion to double.
constexpr uint64_t kFullMantissa = 100'000'000'000'000;
constexpr int kMantissaDigits = 19;  // this number of digits always fits in 64 bits
// Powers of ten that a double holds exactly, so that one correctly rounded operation is sufficient.
constexpr double kTens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                            1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

constexpr uint64_t kWholeTens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
// Bytes that must follow, so that they can be read without a check for the end of the text: a sign,
// two times 8 digits, a point, and 8 bytes after them.
constexpr ptrdiff_t kAhead = 32;

// The number at the start of 8 bytes, and its count of digits. Computed without a loop, because a
// loop whose length depends on the number causes branch mispredictions.
struct Digits {
  uint64_t value;
  unsigned count;
};
inline Digits LeadingDigits(const char* p) {
  constexpr uint64_t kHigh = 0xF0F0F0F0F0F0F0F0u, kThrees = 0x3030303030303030u;
  uint64_t v;
  std::memcpy(&v, p, sizeof v);
  // A digit has the high half 3, also after 6 is added, so both tests give 0.
  const uint64_t other = ((v & kHigh) ^ kThrees) | (((v + 0x0606060606060606u) & kHigh) ^ kThrees);
  const unsigned count = other == 0 ? 8 : static_cast<unsigned>(__builtin_ctzll(other)) / 8;
  if (count == 0) return {0, 0};
  v <<= 64 - 8 * count;                                   // missing digits become leading zeros
  v = (v & 0x0F0F0F0F0F0F0F0Fu) * 2561 >> 8;              // joins pairs of digits
  v = (v & 0x00FF00FF00FF00FFu) * 6553601 >> 16;          // joins groups of four
  v = (v & 0x0000FFFF0000FFFFu) * 42949672960001u >> 32;  // all
  return {v, count};
}

// Parses a number with up to 8 digits, a point and up to 8 more digits, which covers most numbers.
// Returns false for other numbers; the general path reads these. Requires kAhead bytes after `p`.
struct ShortNumber {
  const char* end;
  uint64_t mantissa;
  unsigned decimals;
  bool negative;
};
inline bool ReadShort(const char* p, ShortNumber* out) {
  out->negative = *p == '-';
  p += out->negative;
  const Digits whole = LeadingDigits(p);
  if (whole.count == 0 || whole.count == 8 || (*p == '0' && whole.count > 1)) return false;
  p += whole.count;
  out->mantissa = whole.value;
  out->decimals = 0;
  if (*p == '.') {
    const Digits part = LeadingDigits(++p);
    if (part.count == 0 || part.count == 8) return false;
    out->mantissa = whole.value * kWholeTens[part.count] + part.value;
    out->decimals = part.count;
    p += part.count;
  }
  out->end = p;
  return *p == ',' || *p == ']' || *p == ' ';
}

}  // namespace

// Reads a number by JSON's grammar: no leading zeros, digits on both sides of the point.
bool JsonCursor::Number(double* out, NumberText* text) {
  const char* start = at_;
  const char* p = at_;
  const bool negative = *p == '-';
  if (negative) ++p;
  uint64_t mantissa = 0;
  const auto digits = [&] {
    const char* from = p;
    for (Digits some; end_ - p >= 8 && (some = LeadingDigits(p)).count == 8; p += 8)
      mantissa = mantissa * 100'000'000 + some.value;
    for (; p != end_ && IsDigit(*p); ++p)
      mantissa = mantissa * 10 + static_cast<uint64_t>(*p - '0');
    return p - from;
  };
  ptrdiff_t count = 1;
  if (*p == '0') {
    ++p;
  } else {
    count = digits();
  }
  ptrdiff_t decimals = 0;
  if (p != end_ && *p == '.') {
    ++p;
    decimals = digits();
    at_ = p;
    if (decimals == 0) return Fail("a digit after the point");
  }
  if (p != end_ && (*p | 0x20) == 'e') {
    ++p;
    const bool minus = p != end_ && *p == '-';
    if (p != end_ && (*p == '-' || *p == '+')) ++p;
    const char* from = p;
    ptrdiff_t exponent = 0;
    for (; p != end_ && IsDigit(*p); ++p)
      exponent = std::min<ptrdiff_t>(exponent * 10 + *p - '0', 99999);
    at_ = p;
    if (p == from) return Fail("a digit of the exponent");
    count += decimals;
    decimals += minus ? exponent : -exponent;
  } else {
    count += decimals;
  }
  at_ = p;
  const bool whole = count <= kMantissaDigits;  // if false, the mantissa has overflowed
  text->full |= !whole || mantissa >= kFullMantissa;
  if (decimals > text->decimals) text->decimals = static_cast<int>(decimals);
  if (whole && mantissa <= uint64_t{1} << 53 && decimals >= -22 && decimals <= 22) {
    const auto value = static_cast<double>(mantissa);
    const double scaled = decimals >= 0 ? value / kTens[decimals] : value * kTens[-decimals];
    *out = negative ? -scaled : scaled;
    return true;
  }
  const auto parsed = std::from_chars(start, p, *out);
  if (parsed.ec == std::errc::result_out_of_range) {
    const double size = decimals < 0 ? std::numeric_limits<double>::infinity() : 0.0;
    *out = negative ? -size : size;
  }
  return true;
}

// Reads an integer, also if written as 3.0 or 3e0. If the number is not an integer, or is written
// so and beyond 2^53, the result is kNoInteger.
bool JsonCursor::Integer(int64_t* out) {
  const char* start = at_;
  const char* p = at_;
  const bool negative = *p == '-';
  if (negative) ++p;
  const char* first = p;
  uint64_t value = 0;
  while (p != end_ && IsDigit(*p)) value = value * 10 + static_cast<uint64_t>(*p++ - '0');
  const bool plain = p == end_ || (*p != '.' && (*p | 0x20) != 'e');
  if (plain && p - first < kMantissaDigits && (*first != '0' || p - first == 1)) {
    at_ = p;
    *out = negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
    return true;
  }
  at_ = start;
  double number = 0;
  NumberText text;
  if (!Number(&number, &text)) return false;
  const bool whole = std::trunc(number) == number && std::fabs(number) <= 0x1p53;
  *out = whole ? static_cast<int64_t>(number) : kNoInteger;
  return true;
}

bool JsonCursor::ReadNumber(double* out, NumberText* text) {
  if (Peek() != Kind::kNumber) return Fail("a number");
  return Number(out, text);
}

bool JsonCursor::Odd(size_t index, std::vector<OddElement>* odd) {
  odd->push_back({index, offset()});
  return Skip();
}

template <typename Element>
bool JsonCursor::ReadList(const Element& element) {
  if (!EnterList()) return false;
  first_ = false;
  Space();
  if (at_ != end_ && *at_ == ']') {
    ++at_;
    return true;
  }
  for (size_t i = 0;; ++i) {
    if (!element(i)) return false;
    Space();
    if (at_ == end_ || (*at_ != ',' && *at_ != ']')) return Fail("',' or ']'");
    if (*at_++ == ']') return true;
    if (at_ != end_ && *at_ == ' ') ++at_;
    Space();
  }
}

bool JsonCursor::ReadNumbers(std::vector<double>* out, NumberText* text,
                             std::vector<OddElement>* odd) {
  return ReadList([&](size_t i) {
    ShortNumber number;
    if (end_ - at_ >= kAhead && ReadShort(at_, &number)) {
      at_ = number.end;
      const double value = static_cast<double>(number.mantissa) / kTens[number.decimals];
      out->push_back(number.negative ? -value : value);
      text->decimals = std::max(text->decimals, static_cast<int>(number.decimals));
      return true;
    }
    double value = kNan;
    const bool read = StartsNumber() ? Number(&value, text) : Odd(i, odd);
    out->push_back(value);
    return read;
  });
}

bool JsonCursor::ReadIntegers(std::vector<int64_t>* out, std::vector<OddElement>* odd) {
  return ReadList([&](size_t i) {
    ShortNumber number;
    if (end_ - at_ >= kAhead && ReadShort(at_, &number) && number.decimals == 0) {
      at_ = number.end;
      const auto value = static_cast<int64_t>(number.mantissa);
      out->push_back(number.negative ? -value : value);
      return true;
    }
    const size_t at = offset();
    int64_t value = kNoInteger;
    const bool is_number = StartsNumber();
    const bool read = is_number ? Integer(&value) : Odd(i, odd);
    if (is_number && value == kNoInteger) odd->push_back({i, at});
    out->push_back(value);
    return read;
  });
}

bool JsonCursor::ReadFlags(std::vector<uint8_t>* out, std::vector<OddElement>* odd) {
  return ReadList([&](size_t i) {
    // Fast path for a single digit, which is almost always the case.
    if (end_ - at_ >= 2 && (*at_ == '0' || *at_ == '1') && (at_[1] == ',' || at_[1] == ']')) {
      out->push_back(*at_++ == '1');
      return true;
    }
    const Kind kind = Peek();
    double value = kind == Kind::kTrue ? 1 : 0;
    NumberText text;
    const bool flag = kind == Kind::kTrue || kind == Kind::kFalse;
    const bool read = flag                    ? SkipScalar()
                      : kind == Kind::kNumber ? Number(&value, &text)
                                              : Odd(i, odd);
    out->push_back(value != 0);
    return read;
  });
}

}  // namespace plumbline::audit
