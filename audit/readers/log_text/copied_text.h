// Logs that were copied from a page, a mail or an editor: signs in place of those of ASCII
// (no-break spaces, curly quotes, full-width colons, "&#x27;"), "> " before each line.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

struct CopiedText {
  bool signs = false;   // two lines or more have such signs
  bool quoted = false;  // half of the lines or more, three at least, begin with '>'
};

// Pure; thread-safe.
CopiedText CopiedIn(std::string_view text);

// Returns the line with signs of ASCII and without its '>', as far as the text has such things; the
// line itself, or *scratch.
std::string_view WithoutCopied(std::string_view line, CopiedText text, std::string* scratch);

}  // namespace plumbline::audit
