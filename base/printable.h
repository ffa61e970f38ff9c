// Makes foreign text safe for display. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline {

// Returns valid UTF-8 that cannot control a terminal: control characters (C0, DEL, C1),
// bidirectional overrides and bytes that are no UTF-8 become visible escapes (\n, \x1b, \u202e,
// \xff).
std::string Printable(std::string_view text);

// Returns JSON in which the same characters within strings are \uXXXX: it has the same meaning and
// is safe in a terminal. `json` is valid JSON in UTF-8.
std::string TerminalSafeJson(std::string json);

// Returns valid UTF-8 without other changes: bytes that are no UTF-8 become \xNN.
std::string ValidUtf8(std::string_view text);

}  // namespace plumbline
