// Names in a foreign file that are surely meant to be ours: a misspelt tensor or key must not be
// ignored in silence, for what it says would be missing from the verdict.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace plumbline::audit {

// Insertions, deletions, substitutions and swaps of neighbours that turn one into the other, letter
// case aside. Stops counting beyond `most` and returns most + 1.
size_t EditDistance(std::string_view a, std::string_view b, size_t most);

// The known name that `name` is likely a misspelling of: within 2 edits of one of at least six
// letters, within 1 of a shorter one, within letter case of one below four. Nothing when `name` is
// known itself, or is an ordinary word that happens to be near.
std::optional<std::string_view> MeantName(std::string_view name,
                                          std::span<const std::string_view> known);

}  // namespace plumbline::audit
