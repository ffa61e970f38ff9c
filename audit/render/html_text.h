// Text of somebody else in an HTML page. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// Printable text (base/printable.h) in which & < > " ' are character references: safe between tags
// and in a quoted attribute. Not for scripts, styles or addresses.
std::string HtmlText(std::string_view text);

}  // namespace plumbline::audit
