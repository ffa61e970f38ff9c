#include "server/journal/segments.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumbline::server {
namespace {

constexpr size_t kDigits = 20;
constexpr std::string_view kSuffix = ".plj";

bool ParseName(std::string_view name, uint64_t* first) {
  if (name.size() != kDigits + kSuffix.size() || name.substr(kDigits) != kSuffix) return false;
  const char* end = name.data() + kDigits;
  const auto [at, error] = std::from_chars(name.data(), end, *first);
  return error == std::errc() && at == end && *first > 0;
}

}  // namespace

std::string SegmentPath(const std::string& directory, uint64_t first) {
  return absl::StrFormat("%s/%020d%s", directory, first, std::string(kSuffix));
}

absl::StatusOr<std::vector<Segment>> ListSegments(const std::string& directory) {
  std::vector<Segment> segments;
  std::error_code error;
  if (!std::filesystem::exists(directory, error)) return segments;
  std::filesystem::directory_iterator it(directory, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    Segment segment;
    if (!ParseName(it->path().filename().string(), &segment.first)) continue;
    segment.path = it->path().string();
    segments.push_back(std::move(segment));
  }
  if (error) {
    return absl::UnavailableError(absl::StrCat(directory, ": cannot be listed: ", error.message()));
  }
  std::sort(segments.begin(), segments.end(),
            [](const Segment& a, const Segment& b) { return a.first < b.first; });
  return segments;
}

uint64_t JournalBytes(const std::string& directory) {
  uint64_t bytes = 0;
  const auto segments = ListSegments(directory);
  if (!segments.ok()) return 0;
  for (const Segment& segment : *segments) {
    std::error_code error;
    const auto size = std::filesystem::file_size(segment.path, error);
    if (!error) bytes += size;
  }
  return bytes;
}

absl::Status SyncDirectory(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(directory, ": cannot open"));
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  if (result != 0) return absl::ErrnoToStatus(error, absl::StrCat(directory, ": cannot sync"));
  return absl::OkStatus();
}

}  // namespace plumbline::server
