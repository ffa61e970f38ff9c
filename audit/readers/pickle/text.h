// What protocol 0 writes as text: escapes of strings, numbers in decimal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plumbline::audit {

// The bytes of a Python 2 string literal without its quotes (\n, \x41, \101, ...); nothing: an
// escape is cut.
std::optional<std::string> UnescapeBytes(std::string_view literal);

// UTF-8 of what raw-unicode-escape wrote: latin-1 bytes, \uXXXX, \UXXXXXXXX.
std::optional<std::string> UnescapeUnicode(std::string_view line);

// A whole number in decimal: into *small where 64 bits hold it, else its two's complement, lowest
// byte first, as short as it can be, into *large. False: no number.
bool ParseWhole(std::string_view digits, std::optional<int64_t>* small, std::string* large);

// A float as Python's repr writes it: "1e-08", "inf", "nan".
std::optional<double> ParseReal(std::string_view line);

bool IsAscii(std::string_view text);
// UTF-8 of letters up to U+00FF alone.
bool IsLatin(std::string_view text);

}  // namespace plumbline::audit
