// Escapes foreign text for an HTML page. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// Returns printable text (base/printable.h) with character references for & < > " '. It is safe
// between tags and in a quoted attribute, but not in scripts, styles or addresses.
std::string HtmlText(std::string_view text);

}  // namespace plumbline::audit
