// Jupyter notebooks (nbformat 4): what a training printed stands in the output of a cell.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// The output of a notebook's cells as lines of text; of tables in HTML (transformers' progress) a
// line a row, its cells parted by tabs. `json` may be cut: what came before is given. The layout of
// the JSON does not matter.
std::string OutputOfNotebook(std::string_view json);

// The texts of the messages that a log service exports as one document, a line each:
// {"events": [{"message": "step 1 ..."}, ...]} (aws logs), [{"textPayload": ...}, ...] (gcloud).
std::string LinesOfExport(std::string_view json);

// A file that holds one JSON document whose texts are a log: its lines.
enum class LogDocument { kNone, kNotebook, kExport };
// By the file's name and beginning.
LogDocument DocumentOf(std::string_view path, std::string_view head);
std::string LinesOf(LogDocument document, std::string_view json);

}  // namespace plumbline::audit
