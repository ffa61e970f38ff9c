// A mapping file (TOML): where a foreign format of rollout records keeps our columns.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "audit/readers/rollout/columns.h"
#include "audit/readers/rollout/jsonl.h"

namespace plumbline::audit {

// docs/rollout_records.md says what the file may hold. A path at which no file lies may be the name
// of a map that is in the program (known_maps.h). InvalidArgument "FILE:LINE: expected ..." on
// anything else: an option that is not read would be missing from the verdict.
absl::StatusOr<ColumnMap> ReadColumnMap(const std::string& path);

// Reads files in which a key of the map's log-probabilities occurs. `map` outlives it.
RolloutReader MappedRollouts(const ColumnMap& map);

}  // namespace plumbline::audit
