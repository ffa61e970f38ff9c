// The files of a journal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline::server {

struct Segment {
  uint64_t first = 0;  // number of its first entry, from its name
  std::string path;
};

std::string SegmentPath(const std::string& directory, uint64_t first);

// Returns the segments by number, without files that have other names. If the directory does not
// exist, the list is empty.
absl::StatusOr<std::vector<Segment>> ListSegments(const std::string& directory);

// Returns the bytes of all segments on disk.
uint64_t JournalBytes(const std::string& directory);

// Makes created or removed names in `directory` durable.
absl::Status SyncDirectory(const std::string& directory);

}  // namespace plumbline::server
