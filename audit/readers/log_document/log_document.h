// Files that hold one JSON document whose texts are a log.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

enum class LogDocument { kNone, kNotebook, kExport };
// Returns the kind of a file by its name and beginning.
LogDocument DocumentOf(std::string_view path, std::string_view head);
// Returns the lines of the log.
std::string LinesOf(LogDocument document, std::string_view json);

}  // namespace plumbline::audit
