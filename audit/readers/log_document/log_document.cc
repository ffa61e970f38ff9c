#include "audit/readers/log_document/log_document.h"

#include <algorithm>

#include "audit/readers/log_document/log_export.h"
#include "audit/readers/log_document/notebook.h"

namespace plumbline::audit {

LogDocument DocumentOf(std::string_view path, std::string_view head) {
  if (path.ends_with(".ipynb")) return LogDocument::kNotebook;
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return LogDocument::kNone;
  const std::string_view json = head.substr(first);
  const bool kaggle = json.starts_with("[{\"stream_name\"");
  if (!path.ends_with(".json") && !kaggle) return LogDocument::kNone;
  return LooksLikeExport(json) && !LinesOfExport(json).empty() ? LogDocument::kExport
                                                               : LogDocument::kNone;
}

std::string LinesOf(LogDocument document, std::string_view json) {
  if (document == LogDocument::kNotebook) return OutputOfNotebook(json);
  return LinesOfExport(json.substr(std::min(json.find_first_not_of(" \t\r\n"), json.size())));
}

}  // namespace plumbline::audit
