// A capsule as one file for a browser: a tar of the directory that `plumb capsule` writes, whose
// ranks are run records.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "plumbline/v1/capsule.pb.h"

namespace plumbline::server {

constexpr uint64_t kMostArchiveBytes = uint64_t{64} << 20;

// `held`: the bytes of ranks of `info`, each a v1.Batch, in ascending order. Returns a tar that
// holds, below the folder `name`: finding.json, a record per rank, and manifest.json with their
// digests. Returns DataLoss if bytes are not a batch.
absl::StatusOr<std::string> CapsuleArchive(const std::string& name, const v1::CapsuleInfo& info,
                                           const std::vector<std::pair<int, std::string>>& held);

}  // namespace plumbline::server
