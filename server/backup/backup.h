// `plumbd backup` and `plumbd restore`: a data directory copied while its server runs, and back.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace plumbline::server {

// Copies what a server keeps at `data` into `directory`; the server may run meanwhile. `directory`
// must not exist, be empty, or hold an older backup of the same journal, which is then replaced.
// Its name appears when the copy is complete, checked and durable. Everything that was acknowledged
// before the call is in it. Returns a line for people. Every error names the file, the reason and
// the expected content; `directory` is as it was then.
absl::StatusOr<std::string> TakeBackup(const std::string& data, const std::string& directory,
                                       const std::string& tool_version);

// Checks the backup, then copies it into `data`, which is made if it does not exist, and must be
// empty and in no server's use. A symlink is followed. If the caller is root, all files get the
// folder's owner. Returns a line for people. If it is cut off, plumbd refuses to start on `data`,
// and the same call completes it.
absl::StatusOr<std::string> RestoreBackup(const std::string& directory, const std::string& data);

}  // namespace plumbline::server
