// Explains what a user can do with a file that no reader accepts. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// Returns true if the first bytes are text.
bool LooksLikeText(std::string_view head);
// Returns true for a text with numbers on its lines, like logs and tables, which a reader was
// probably meant to read.
bool LooksLikeLog(std::string_view path, std::string_view head);

// Identifies a file of an aim repository (.aim), a store that is not supported, and returns the
// alternative.
bool IsOfAim(std::string_view path);
std::string RefusalOfAim(std::string_view path);

// Returns ", found ..." for the refusal of a file: its kind, and the alternative. For a text, it
// has the first line with a number, and an example of a line that is read.
std::string RefusalOf(std::string_view path, std::string_view head);

}  // namespace plumbline::audit
