// Reads files with secrets, only if no other user can read them.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline {

// Returns the whole file. Returns NotFound or PermissionDenied if it cannot be read. Returns
// FailedPrecondition if other users can read it, if it is no regular file, or if it is larger than
// `max_bytes`. A group may read it if root owns the file and we are not root: services get secrets
// in this way. No message quotes the content.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, size_t max_bytes = 1u << 20);

}  // namespace plumbline
