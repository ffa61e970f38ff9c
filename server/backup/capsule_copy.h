// The capsules of a data directory, copied while a server makes, finishes and removes them.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "server/backup/file_copy.h"

namespace plumbline::server {

// Copies DATA/capsules below the folder `to`, which exists. Adds each file to `files`, with its
// path below `to` as key. Each capsule is copied as of one moment. A capsule that the server
// removes meanwhile is left out. Returns DataLoss if a file that a capsule names is missing.
absl::Status CopyCapsules(const std::string& data, const std::string& to,
                          std::map<std::string, FileDigest>* files);

}  // namespace plumbline::server
