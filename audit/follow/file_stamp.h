// What tells whether a file is another one, or has changed, since it was looked at last.
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

// nullopt: there is no such file, or it cannot be asked. Links are followed.
std::optional<FileStamp> StampOf(const std::string& path);

}  // namespace plumbline::audit
