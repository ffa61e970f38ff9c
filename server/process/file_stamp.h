// Detects that a file changed: by an edit in place, a rename over it, or a chmod.
#pragma once

#include <cstdint>
#include <string>

namespace plumbline::server {

struct FileStamp {
  // all 0: the file does not exist
  int64_t device = 0, inode = 0, size = 0, modified_ns = 0, changed_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

FileStamp StampOf(const std::string& path);

}  // namespace plumbline::server
