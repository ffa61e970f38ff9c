// Recognises logs whose lines have no step and no epoch: "Training: loss = 2.5, acc = 0.5".
#pragma once

#include <string_view>

namespace plumbline::audit {

// Returns true if most lines of the sample are such rows with the same names, and no line has a
// count. The step of a row is then its number. Thread-safe.
bool RowsStandAlone(std::string_view sample);

}  // namespace plumbline::audit
