// Names of series that are known as a whole: metrics of reinforcement learning, experts, skipped
// steps, speed. A table that grows by a line a name; what it lacks is read by words (role.h).
#pragma once

#include <optional>
#include <string_view>

#include "analysis/role/role.h"

namespace plumbline {

// The role of a name in the table. Case does not matter, `/ _ - . :` and spaces are alike, and
// wrapping prefixes (train/, data/, actor/, val/, metrics/) are taken off. Nothing: not in it.
std::optional<SeriesRole> RoleInTable(std::string_view name);

}  // namespace plumbline
