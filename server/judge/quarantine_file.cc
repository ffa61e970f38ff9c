#include "server/judge/quarantine_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "server/journal/segments.h"

namespace plumbline::server {
namespace {

constexpr char kQuarantineSchema[] = "plumbline.quarantine/1";

std::string FileHeadOf(const std::string& body) {
  return absl::StrCat(kQuarantineSchema, " ",
                      absl::Hex(Crc32c(body.data(), body.size()), absl::kZeroPad8), "\n");
}

absl::Status WriteWhole(const std::string& path, const std::string& bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  size_t done = 0;
  int failed = 0;
  while (failed == 0 && done < bytes.size()) {
    const ssize_t n =
        pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n > 0) done += static_cast<size_t>(n);
    if (n <= 0 && errno != EINTR) failed = errno;
  }
  if (failed == 0 && fsync(fd) != 0) failed = errno;
  close(fd);
  if (failed == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(failed, absl::StrCat(path, ": cannot write"));
}

}  // namespace

absl::StatusOr<v1::QuarantineState> ReadQuarantine(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return absl::NotFoundError(absl::StrCat(path, ": the file does not exist"));
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))  // reading a directory throws
    return absl::DataLossError(absl::StrCat(path, ": expected a file, found something else"));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t line = text.find('\n');
  const std::string body = line == std::string::npos ? "" : text.substr(line + 1);
  v1::QuarantineState state;
  if (line == std::string::npos || text.substr(0, line + 1) != FileHeadOf(body) ||
      !state.ParseFromString(body)) {
    return absl::DataLossError(
        absl::StrCat(path, ": byte 0: expected a line \"", kQuarantineSchema,
                     " CRC32C\" and the bytes of this checksum, found other bytes"));
  }
  return state;
}

absl::Status WriteQuarantine(const std::string& path, const v1::QuarantineState& state) {
  const std::string body = state.SerializeAsString();
  const std::string unfinished = path + ".unfinished";
  if (auto s = WriteWhole(unfinished, FileHeadOf(body) + body); !s.ok()) return s;
  if (std::rename(unfinished.c_str(), path.c_str()) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot replace"));
  return SyncDirectory(std::filesystem::path(path).parent_path());
}

}  // namespace plumbline::server
