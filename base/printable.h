// Text that came from somebody else, made safe for a person to see. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline {

// Valid UTF-8 that cannot steer a terminal: control characters (C0, DEL, C1), bidirectional
// overrides and bytes that are no UTF-8 become visible escapes (\n, \x1b, \u202e, \xff).
std::string Printable(std::string_view text);

// JSON in which the same characters of its strings are \uXXXX: it means the same, and may be looked
// at in a terminal. `json` is valid JSON in UTF-8.
std::string TerminalSafeJson(std::string json);

// Valid UTF-8 and nothing else changed: bytes that are no UTF-8 become \xNN.
std::string ValidUtf8(std::string_view text);

}  // namespace plumbline
