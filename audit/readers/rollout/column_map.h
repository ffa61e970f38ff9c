// Reads a mapping file (TOML), which gives the place of each of our columns in a foreign format of
// rollout records.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "audit/readers/rollout/columns.h"
#include "audit/readers/rollout/jsonl.h"

namespace plumbline::audit {

// Reads a map; docs/rollout_records.md defines its content. If no file exists at the path, it may
// be the name of a built-in map (known_maps.h). For any unknown content, returns InvalidArgument
// "FILE:LINE: expected ...", because an ignored option could make a verdict wrong.
absl::StatusOr<ColumnMap> ReadColumnMap(const std::string& path);

// Returns the readers of the built-in maps. Each recognises its files by their keys. Static
// storage.
std::vector<const Reader*> KnownRollouts();

// Returns a reader of files that contain a key of the map's log-probabilities. `map` must outlive
// it.
RolloutReader MappedRollouts(const ColumnMap& map);

}  // namespace plumbline::audit
