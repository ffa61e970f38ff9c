// Copies texts into the fixed arrays of the C ABI.
#pragma once

#include <cstring>
#include <string>

namespace plumbline::agent {

// Copies `text` with a closing zero. If it does not fit, cuts it at the start of a UTF-8 character.
template <size_t N>
void CopyText(const std::string& text, char (&out)[N]) {
  size_t n = text.size() < N ? text.size() : N - 1;
  while (n < text.size() && n > 0 && (static_cast<unsigned char>(text[n]) & 0xc0) == 0x80) --n;
  std::memcpy(out, text.data(), n);
  out[n] = '\0';
}

}  // namespace plumbline::agent
