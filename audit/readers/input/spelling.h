// Finds names in a foreign file that are probably misspelt known names. They must not be ignored
// silently, because their data would be missing from the verdict.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace plumbline::audit {

// Returns the number of insertions, deletions, substitutions and swaps of neighbours that turn one
// name into the other, ignoring case. Stops counting beyond `most` and returns most + 1.
size_t EditDistance(std::string_view a, std::string_view b, size_t most);

// Returns the known name that `name` probably misspells: within 2 edits if the known name has at
// least six letters, 1 if shorter, and only in case below four. If `name` is known itself, or is an
// ordinary word, returns nothing.
std::optional<std::string_view> MeantName(std::string_view name,
                                          std::span<const std::string_view> known);

}  // namespace plumbline::audit
