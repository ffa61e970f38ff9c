// Converts a path to a URI reference (RFC 3986). Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// Returns "runs/a%20b.jsonl" for a path below `folder` (absolute, the working directory) or a
// relative path that stays below it; "file:///..." for any other. Bytes that a URI may not hold are
// encoded as %XX.
std::string FileUri(std::string_view path, std::string_view folder);

}  // namespace plumbline::audit
