// What a user may do with a file that no reader takes. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// The first bytes are those of a text.
bool LooksLikeText(std::string_view head);
// A text with numbers on its lines, as logs and tables have: some reader might have been meant.
bool LooksLikeLog(std::string_view path, std::string_view head);

// A file of an aim repository (.aim), a store that is not read; and the way that works.
bool IsOfAim(std::string_view path);
std::string RefusalOfAim(std::string_view path);

// ", found ..." of the refusal of a file: what it is, and the way that works. For a text its first
// line with a number, and an example of a line that is read.
std::string RefusalOf(std::string_view path, std::string_view head);

}  // namespace plumbline::audit
