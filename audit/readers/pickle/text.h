// Parses the text forms of protocol 0: escapes of strings, decimal numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plumbline::audit {

// Returns the bytes of a Python 2 string literal without its quotes (\n, \x41, \101, ...). If an
// escape is truncated, returns nothing.
std::optional<std::string> UnescapeBytes(std::string_view literal);

// Converts raw-unicode-escape to UTF-8: latin-1 bytes, \uXXXX, \UXXXXXXXX.
std::optional<std::string> UnescapeUnicode(std::string_view line);

// Parses a decimal integer: into *small if it fits in 64 bits, otherwise into *large as the
// shortest two's complement, lowest byte first. Returns false if it is not a number.
bool ParseWhole(std::string_view digits, std::optional<int64_t>* small, std::string* large);

// Parses a float as Python's repr writes it: "1e-08", "inf", "nan".
std::optional<double> ParseReal(std::string_view line);

bool IsAscii(std::string_view text);
// Returns true for UTF-8 of letters up to U+00FF only.
bool IsLatin(std::string_view text);

}  // namespace plumbline::audit
