// Files that hold secrets: read only when nobody else can read them.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline {

// The whole file. NotFound or PermissionDenied: it cannot be read. FailedPrecondition: others can
// read it, too (a group may, where root owns the file and we are not root: so secrets are handed to
// services), it is no regular file, or it is larger than `max_bytes`. No message quotes the
// content.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, size_t max_bytes = 1u << 20);

}  // namespace plumbline
