// A mapping file (TOML) of scalars: the roles of a foreign run's series, and the layout of its
// files.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "analysis/series/series.h"
#include "audit/readers/input/reader_options.h"

namespace plumbline::audit {

struct ScalarMap {
  SeriesRoles roles;
  ScalarOptions options;
};

// Returns nullopt if the file has none of the keys of such a map, because it is then another kind
// of map. docs/scalars.md lists the keys. For any error, returns InvalidArgument "FILE:LINE:
// expected ...".
absl::StatusOr<std::optional<ScalarMap>> ReadScalarMap(const std::string& path);

}  // namespace plumbline::audit
