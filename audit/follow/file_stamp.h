// Identifies a file and its state, to detect that it was replaced or has changed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace plumbline::audit {

struct FileStamp {
  uint64_t device = 0, inode = 0;
  uint64_t size = 0;  // bytes
  int64_t changed_ns = 0;

  bool SameFile(const FileStamp& other) const {
    return device == other.device && inode == other.inode;
  }
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// Returns the stamp of a file. If the file does not exist or cannot be examined, returns nullopt.
// Follows links.
std::optional<FileStamp> StampOf(const std::string& path);

}  // namespace plumbline::audit
