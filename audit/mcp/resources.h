// The rules' pages as resources: plumbline://rules/GROUP/NAME. Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "audit/mcp/message.h"

namespace plumbline::audit::mcp {

// Return the protocol's complete lists: {"resources": [...]}, {"resourceTemplates": [...]}.
Json ResourceList();
Json ResourceTemplates();
// Returns {"contents": [one]}. If there is no such page, returns NotFound.
absl::StatusOr<Json> ReadResource(const std::string& uri);

}  // namespace plumbline::audit::mcp
