// Names of series that are known as a whole: metrics of reinforcement learning, experts, skipped
// steps, speed. A table with one line per name. If a name is missing, it is read by words (role.h).
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
