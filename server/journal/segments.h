// The files of a journal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline::server {

struct Segment {
  uint64_t first = 0;  // number of its first entry, as its name says
  std::string path;
};

std::string SegmentPath(const std::string& directory, uint64_t first);

// By number. Files with other names are left out. An empty list when the directory does not exist.
absl::StatusOr<std::vector<Segment>> ListSegments(const std::string& directory);

// Of all of them together, on disk.
uint64_t JournalBytes(const std::string& directory);

// Makes names that were created or removed in `directory` durable.
absl::Status SyncDirectory(const std::string& directory);

}  // namespace plumbline::server
