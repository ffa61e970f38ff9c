// Reads the key with which plumbd hashes ids ([redact]).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/settings/config.h"
#include "transport/redact.h"

namespace plumbline::server {

// Returns null if ids are not redacted. Errors name the file and what was expected, never the key.
absl::StatusOr<std::shared_ptr<const transport::Redactor>> RedactorOf(const Config& config);

}  // namespace plumbline::server
