// Literals of Python that hold a whole training: print(trainer.state.log_history), a list of
// dictionaries, and print(history.history), a dictionary of lists. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

// Returns a dictionary per row, "{'step': 3, 'loss': 2.5}", if the line has such a literal: two
// dictionaries or elements of a list at least, with a name of a training. Without a list of steps
// the place in the lists, from 1, is the step. Else returns an empty list.
std::vector<std::string> RowsOfLiteral(std::string_view line);

}  // namespace plumbline::audit
