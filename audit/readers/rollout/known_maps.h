// The maps of audit/maps, which are in the program: --map verl.
#pragma once

#include <optional>
#include <string_view>

namespace plumbline::audit {

// The text of the map of this name; nothing: there is none.
std::optional<std::string_view> KnownMap(std::string_view name);

// The name of the map that reads a rollout file of this beginning, by the keys of its first record;
// empty: none does.
std::string_view KnownMapFor(std::string_view head);

// The file holds samples that a trainer kept without log-probabilities (prompts, answers, scores).
bool HoldsSamplesAlone(std::string_view head);

}  // namespace plumbline::audit
