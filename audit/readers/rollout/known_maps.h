// Returns the built-in maps of audit/maps, as for --map verl.
#pragma once

#include <optional>
#include <string_view>

namespace plumbline::audit {

// Returns the text of the map of this name. If there is none, returns nothing.
std::optional<std::string_view> KnownMap(std::string_view name);

// Returns the name of the map that can read a rollout file with this beginning. Uses the keys of
// its first record. If no map can, returns "".
std::string_view KnownMapFor(std::string_view head);

// Returns true if the file holds samples (texts of prompts and answers) without log-probabilities.
bool HoldsSamplesAlone(std::string_view head);

}  // namespace plumbline::audit
