// Restores logs that were copied from a page, a mail or an editor. They have other signs in place
// of ASCII (no-break spaces, curly quotes, full-width colons, "&#x27;"), or "> " before each line.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

struct CopiedText {
  bool signs = false;   // two lines or more have signs in place of ASCII
  bool quoted = false;  // at least half of the lines, and at least three, begin with '>'
};

// Pure function; thread-safe.
CopiedText CopiedIn(std::string_view text);

// Returns the line with ASCII signs and without its '>', as `text` requires. The result is the line
// itself, or a view of *scratch.
std::string_view WithoutCopied(std::string_view line, CopiedText text, std::string* scratch);

}  // namespace plumbline::audit
