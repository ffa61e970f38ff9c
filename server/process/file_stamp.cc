#include "server/process/file_stamp.h"

#include <sys/stat.h>

namespace plumbline::server {
namespace {

int64_t Nanoseconds(const timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; }

}  // namespace

FileStamp StampOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {static_cast<int64_t>(info.st_dev), static_cast<int64_t>(info.st_ino), info.st_size,
          Nanoseconds(info.st_mtim), Nanoseconds(info.st_ctim)};
}

}  // namespace plumbline::server
