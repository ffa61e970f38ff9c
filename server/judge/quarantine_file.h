// DATA/quarantine: a line "plumbline.quarantine/1 CRC32C", then a v1::QuarantineState.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/journal.pb.h"

namespace plumbline::server {

// Returns NotFound if there is no file, DataLoss if it is damaged.
absl::StatusOr<v1::QuarantineState> ReadQuarantine(const std::string& path);
// Replaces the file durably. If it fails, the file is unchanged.
absl::Status WriteQuarantine(const std::string& path, const v1::QuarantineState& state);

}  // namespace plumbline::server
