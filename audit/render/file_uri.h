// A path as a URI reference (RFC 3986), for formats that name files so. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// "runs/a%20b.jsonl" for a path below `folder` (absolute, the working directory) or a relative path
// that stays below it; "file:///..." for any other. Bytes that a URI may not hold are %XX.
std::string FileUri(std::string_view path, std::string_view folder);

}  // namespace plumbline::audit
