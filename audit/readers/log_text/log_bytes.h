// Classifies bytes of a log line: digits, letters, signs.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace plumbline::audit {

inline bool IsPairDigit(char c) { return c >= '0' && c <= '9'; }
inline bool IsPairLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline bool IsSpaceByte(char c) { return c == ' ' || c == '\t'; }

// Returns the end of the spaces that begin at `at`.
inline size_t PassBlanks(std::string_view text, size_t at) {
  while (at < text.size() && IsSpaceByte(text[at])) ++at;
  return at;
}

// A set of bytes.
class Bytes {
 public:
  constexpr explicit Bytes(std::string_view bytes) {
    for (const char c : bytes) in_[static_cast<unsigned char>(c)] = true;
  }
  constexpr bool operator[](char c) const { return in_[static_cast<unsigned char>(c)]; }

 private:
  std::array<bool, 256> in_{};
};

inline constexpr Bytes kSpaces(" \t");
inline constexpr size_t kMostNameBytes = 96;  // limit for the name of a series in a line

inline void Trim(std::string_view* text, const Bytes& front, const Bytes& back) {
  while (!text->empty() && front[text->front()]) text->remove_prefix(1);
  while (!text->empty() && back[text->back()]) text->remove_suffix(1);
}

}  // namespace plumbline::audit
