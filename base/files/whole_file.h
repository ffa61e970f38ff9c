// Reading a file as a whole.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace plumbline {

// Returns the content of `path`, a pipe's too. NotFound, PermissionDenied or another code of the
// system's error: "PATH: cannot be read: Permission denied". Thread-safe.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

}  // namespace plumbline
