#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace plumbline::audit {

// Returns the bytes of a regular file. Errors state what was expected and found, without the path.
absl::StatusOr<std::string> WholeFile(const std::string& path, uint64_t most_bytes);

}  // namespace plumbline::audit
