// Reads Python literals that hold a whole training: print(trainer.state.log_history), a list of
// dictionaries, and print(history.history), a dictionary of lists. Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

// If the line has such a literal, returns one dictionary per row, "{'step': 3, 'loss': 2.5}". The
// literal must have at least two rows, and a name that trainings use. If there is no list of steps,
// the index in the lists, from 1, is the step. If there is no such literal, returns an empty list.
std::vector<std::string> RowsOfLiteral(std::string_view line);

}  // namespace plumbline::audit
