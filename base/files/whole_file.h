// Reads a whole file.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace plumbline {

// A file that a person writes is far smaller; a device has no end.
inline constexpr uint64_t kMostWholeFile = uint64_t{64} << 20;

// Returns the content of `path`, also of a pipe. Returns NotFound, PermissionDenied or another code
// of the system's error: "PATH: cannot be read: Permission denied". Returns InvalidArgument if it
// is longer than `most_bytes`: "PATH: byte 67108864: expected the end of the file". Thread-safe.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          uint64_t most_bytes = kMostWholeFile);

}  // namespace plumbline
