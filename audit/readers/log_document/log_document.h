// Reads files with one JSON document whose texts are a log.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

enum class LogDocument { kNone, kNotebook, kExport };
// Returns the kind of a file, from its name and its first bytes.
LogDocument DocumentOf(std::string_view path, std::string_view head);
// Returns the lines of the log.
std::string LinesOf(LogDocument document, std::string_view json);

}  // namespace plumbline::audit
