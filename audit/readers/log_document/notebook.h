// Jupyter notebooks (nbformat 4): what a training printed stands in the output of a cell.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// The output of a notebook's cells as lines of text; of tables in HTML (transformers' progress) a
// line a row, its cells parted by tabs. `json` may be cut: what came before is given. The layout of
// the JSON does not matter.
std::string OutputOfNotebook(std::string_view json);

}  // namespace plumbline::audit
