// Reads Jupyter notebooks (nbformat 4), whose cells contain the output of a training.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// Returns the output of a notebook's cells as lines of text. A row of an HTML table (transformers'
// progress) becomes one line, its cells separated by tabs. If `json` is truncated, returns the
// output before its end. Accepts any layout of the JSON.
std::string OutputOfNotebook(std::string_view json);

}  // namespace plumbline::audit
