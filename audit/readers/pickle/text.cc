#include "audit/readers/pickle/text.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace plumbline::audit {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Parses `digits` hexadecimal digits at `at`. If there are fewer, returns nothing.
std::optional<uint32_t> Hex(std::string_view text, size_t at, size_t digits) {
  if (text.size() - at < digits) return std::nullopt;
  uint32_t value = 0;
  for (size_t i = 0; i < digits; ++i) {
    const int digit = HexDigit(text[at + i]);
    if (digit < 0) return std::nullopt;
    value = value << 4 | static_cast<uint32_t>(digit);
  }
  return value;
}

void AppendLetter(uint32_t letter, std::string* out) {
  const auto put = [&](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (letter < 0x80) {
    put(letter);
  } else if (letter < 0x800) {
    put(0xc0 | letter >> 6);
    put(0x80 | (letter & 0x3f));
  } else if (letter < 0x10000) {
    put(0xe0 | letter >> 12);
    put(0x80 | (letter >> 6 & 0x3f));
    put(0x80 | (letter & 0x3f));
  } else {
    put(0xf0 | letter >> 18);
    put(0x80 | (letter >> 12 & 0x3f));
    put(0x80 | (letter >> 6 & 0x3f));
    put(0x80 | (letter & 0x3f));
  }
}

// Returns the byte of a one-letter escape; -1 if there is none.
int SimpleEscape(char c) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"";
  constexpr std::string_view kBytes = "\a\b\f\n\r\t\v\\'\"";
  const size_t at = kLetters.find(c);
  return at == std::string_view::npos ? -1 : kBytes[at];
}

}  // namespace

std::optional<std::string> UnescapeBytes(std::string_view literal) {
  std::string out;
  out.reserve(literal.size());
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\') {
      out.push_back(literal[i]);
      continue;
    }
    if (++i == literal.size()) return std::nullopt;
    const char c = literal[i];
    if (const int simple = SimpleEscape(c); simple >= 0) {
      out.push_back(static_cast<char>(simple));
    } else if (c == 'x') {
      const std::optional<uint32_t> value = Hex(literal, i + 1, 2);
      if (!value) return std::nullopt;
      out.push_back(static_cast<char>(*value));
      i += 2;
    } else if (c >= '0' && c <= '7') {
      uint32_t value = 0;
      size_t digits = 0;
      for (; digits < 3 && i + digits < literal.size(); ++digits) {
        const char d = literal[i + digits];
        if (d < '0' || d > '7') break;
        value = value << 3 | static_cast<uint32_t>(d - '0');
      }
      out.push_back(static_cast<char>(value));
      i += digits - 1;
    } else {
      out.push_back('\\');
      out.push_back(c);
    }
  }
  return out;
}

std::optional<std::string> UnescapeUnicode(std::string_view line) {
  std::string out;
  out.reserve(line.size());
  for (size_t i = 0; i < line.size(); ++i) {
    const bool escape = line[i] == '\\' && i + 1 < line.size();
    const size_t digits = escape ? (line[i + 1] == 'u' ? 4 : line[i + 1] == 'U' ? 8 : 0) : 0;
    if (digits == 0) {
      AppendLetter(static_cast<unsigned char>(line[i]), &out);
      continue;
    }
    const std::optional<uint32_t> letter = Hex(line, i + 2, digits);
    if (!letter || *letter > 0x10ffff) return std::nullopt;
    AppendLetter(*letter, &out);
    i += 1 + digits;
  }
  return out;
}

bool ParseWhole(std::string_view digits, std::optional<int64_t>* small, std::string* large) {
  if (digits.ends_with('L')) digits.remove_suffix(1);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) return false;
  if (error == std::errc()) {
    *small = value;
    return true;
  }
  const bool negative = digits.starts_with('-');
  std::vector<uint8_t> magnitude;  // bytes of the number, lowest byte first
  for (const char c : digits.substr(negative ? 1 : 0)) {
    auto carry = static_cast<uint32_t>(c - '0');
    for (uint8_t& byte : magnitude) {
      carry += byte * 10u;
      byte = static_cast<uint8_t>(carry);
      carry >>= 8;
    }
    if (carry > 0) magnitude.push_back(static_cast<uint8_t>(carry));
  }
  magnitude.push_back(0);  // adds a byte for the sign
  if (negative) {
    uint32_t carry = 1;
    for (uint8_t& byte : magnitude) {
      carry += static_cast<uint8_t>(~byte);
      byte = static_cast<uint8_t>(carry);
      carry >>= 8;
    }
  }
  while (magnitude.size() > 1) {  // removes a byte that the sign of the byte below implies
    const uint8_t top = magnitude.back(), below = magnitude[magnitude.size() - 2];
    if (top != (below >= 0x80 ? 0xff : 0)) break;
    magnitude.pop_back();
  }
  large->assign(magnitude.begin(), magnitude.end());
  return true;
}

std::optional<double> ParseReal(std::string_view line) {
  if (line.starts_with('+')) line.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (end != line.data() + line.size() || error != std::errc()) return std::nullopt;
  return value;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

bool IsLatin(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x80) continue;
    if ((c != 0xc2 && c != 0xc3) || i + 1 == text.size()) return false;
    if ((static_cast<unsigned char>(text[++i]) & 0xc0) != 0x80) return false;
  }
  return true;
}

}  // namespace plumbline::audit
