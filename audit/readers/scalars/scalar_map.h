// A mapping file (TOML) of scalars: what a foreign run's series are, and how its files are laid
// out.
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

// nullopt: the file has none of the keys of such a map, so that it is one of another kind.
// docs/scalars.md says what it may hold. InvalidArgument "FILE:LINE: expected ..." on anything
// else.
absl::StatusOr<std::optional<ScalarMap>> ReadScalarMap(const std::string& path);

}  // namespace plumbline::audit
