// The rules' pages as resources: plumbline://rules/GROUP/NAME. Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "audit/mcp/message.h"

namespace plumbline::audit::mcp {

// The protocol's lists, whole: {"resources": [...]}, {"resourceTemplates": [...]}.
Json ResourceList();
Json ResourceTemplates();
// {"contents": [one]}. NotFound: there is no such page.
absl::StatusOr<Json> ReadResource(const std::string& uri);

}  // namespace plumbline::audit::mcp
