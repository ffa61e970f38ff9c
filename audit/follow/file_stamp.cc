#include "audit/follow/file_stamp.h"

#include <sys/stat.h>

namespace plumbline::audit {

std::optional<FileStamp> StampOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return FileStamp{info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size),
                   info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

}  // namespace plumbline::audit
