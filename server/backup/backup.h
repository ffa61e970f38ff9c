// `plumbd backup` and `plumbd restore`: copies a data directory while its server runs, and copies
// it back.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace plumbline::server {

// Copies the data of a server at `data` into `directory`; the server may run meanwhile. `directory`
// must not exist, be empty, or hold an older backup of the same journal, which is then replaced.
// Its name appears when the copy is complete, checked and durable. Everything that was acknowledged
// before the call is in it. Returns a line for people. Every error names the file, the reason and
// the expected content; after an error, `directory` is unchanged.
absl::StatusOr<std::string> TakeBackup(const std::string& data, const std::string& directory,
                                       const std::string& tool_version);

// Checks the backup, then copies it into `data`, which is created if it does not exist. `data` must
// be empty, and no server may use it. A symlink is followed. If the caller is root, all files get
// the folder's owner. Returns a line for people. If the restore is interrupted, plumbd refuses to
// start on `data`, and the same call completes the restore.
absl::StatusOr<std::string> RestoreBackup(const std::string& directory, const std::string& data);

}  // namespace plumbline::server
