// Finds the role of names that are known as a whole: metrics of reinforcement learning, experts,
// skipped steps, speed. Uses a table with one line per name. For a missing name, role.h uses its
// words.
#pragma once

#include <optional>
#include <string_view>

#include "analysis/role/role.h"

namespace plumbline {

// Returns the role of a name in the table. Case is ignored, `/ _ - . :` and spaces are equal.
// Wrapping prefixes (train/, data/, actor/, policy/, ppo_actor/update/, ...) are removed, and from
// a policy's metric also the ending (/avg, /max, /min). If the name is missing, returns nullopt.
std::optional<SeriesRole> RoleInTable(std::string_view name);

}  // namespace plumbline
