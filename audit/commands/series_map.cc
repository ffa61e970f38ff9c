#include <optional>

#include "audit/commands/commands.h"
#include "audit/readers/scalars/scalar_map.h"
#include "audit/session/audit.h"

namespace plumbline::audit {

std::string TakeScalarMap(const std::string& file, AuditOptions* options, bool* taken) {
  absl::StatusOr<std::optional<ScalarMap>> map = ReadScalarMap(file);
  if (!map.ok()) return "--map: " + std::string(map.status().message());
  *taken = map->has_value();
  if (!*taken) return "";
  options->engine.roles = (*map)->roles;
  options->readers.scalars = (*map)->options;
  return "";
}

}  // namespace plumbline::audit
