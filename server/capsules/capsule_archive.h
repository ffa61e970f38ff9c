// A capsule as one file that a browser can keep: a tar of the directory that `plumb capsule`
// writes, whose ranks are run records.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "plumbline/v1/capsule.pb.h"

namespace plumbline::server {

constexpr uint64_t kMostArchiveBytes = uint64_t{64} << 20;

// `held`: for ranks of `info` the bytes that are held, each a v1.Batch; in ascending order. Below
// the folder `name`: finding.json, a record a rank, manifest.json with their digests. DataLoss:
// bytes that are no batch.
absl::StatusOr<std::string> CapsuleArchive(const std::string& name, const v1::CapsuleInfo& info,
                                           const std::vector<std::pair<int, std::string>>& held);

}  // namespace plumbline::server
