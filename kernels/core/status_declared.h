// absl::Status and absl::StatusOr for headers that device code includes too. nvcc parses a file
// five times, and no kernel returns a status. So device code sees only declarations, which halves
// the parsed text.
#pragma once

#ifdef __CUDACC__
#include "absl/base/config.h"

namespace absl {
ABSL_NAMESPACE_BEGIN
class Status;
template <typename T>
class StatusOr;
ABSL_NAMESPACE_END
}  // namespace absl
#else
#include "absl/status/status.h"    // IWYU pragma: export
#include "absl/status/statusor.h"  // IWYU pragma: export
#endif
