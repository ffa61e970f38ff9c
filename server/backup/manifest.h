// DIR/manifest.json: the content of a backup. Written last; without it a folder is not a backup.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/backup/file_copy.h"

namespace plumbline::server {

inline constexpr char kManifest[] = "manifest.json";

struct Manifest {
  std::string tool_version;
  std::string journal_id;                    // as DataDirectory::journal_id
  int64_t unix_ns = 0;                       // when the backup was begun
  uint64_t first_entry = 0, last_entry = 0;  // of the journal; 0: it is empty
  uint64_t checkpoint_entry = 0;             // of the newest checkpoint; 0: there is none
  std::map<std::string, FileDigest> files;   // by path below the backup

  uint64_t bytes() const;  // of all files
};

absl::Status WriteManifest(const std::string& directory, const Manifest& manifest);

// Returns NotFound if there is none, so that `directory` is not a complete backup; DataLoss if it
// is damaged.
absl::StatusOr<Manifest> ReadManifest(const std::string& directory);

// Returns OK if every file of the manifest is below `directory` with its size and its digest.
// DataLoss names the first that differs, with what was expected and found.
absl::Status CheckFiles(const std::string& directory, const Manifest& manifest);

}  // namespace plumbline::server
