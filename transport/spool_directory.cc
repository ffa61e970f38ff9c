#include "transport/spool_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace plumbline::transport {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSegmentSuffix = ".pls";
constexpr std::string_view kLockName = "lock";

// The kernel's locks do not exclude a process from itself, and closing any descriptor of a file
// releases this process's lock on it. So this process never opens one of its directories twice.
struct Held {
  Mutex mutex;
  std::set<std::string> directories PLUMB_GUARDED_BY(mutex);
};
Held& HeldHere() {
  static Held& held = *new Held;  // never destroyed: may be used while the process ends
  return held;
}

std::string Canonical(const std::string& path) {
  std::error_code error;
  const fs::path found = fs::weakly_canonical(path, error);
  return error ? path : found.string();
}

template <typename T>
bool ParseNumber(std::string_view text, int base, T* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// Parses "trainer-r00003-0123456789abcdef".
std::optional<FoundSpool> ParseName(const std::string& name) {
  FoundSpool found;
  std::string_view rest = name;
  if (rest.rfind("trainer-r", 0) == 0) {
    found.role = v1::ROLE_TRAINER;
  } else if (rest.rfind("rollout-r", 0) == 0) {
    found.role = v1::ROLE_ROLLOUT;
  } else {
    return std::nullopt;
  }
  rest.remove_prefix(9);
  const size_t dash = rest.find('-');
  if (dash == std::string_view::npos || rest.size() - dash - 1 != 16) return std::nullopt;
  if (!ParseNumber(rest.substr(0, dash), 10, &found.rank)) return std::nullopt;
  if (!ParseNumber(rest.substr(dash + 1), 16, &found.stream_id)) return std::nullopt;
  return found;
}

}  // namespace

// Locks `made_as`, and renames it to `directory` if the names differ.
absl::StatusOr<std::unique_ptr<SpoolLock>> SpoolLock::TakeAs(const std::string& directory,
                                                             const std::string& made_as) {
  const std::string name = Canonical(directory);
  const auto busy = [&] {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, ": a running process uses this spool"));
  };
  Held& held = HeldHere();
  const MutexLock guard(held.mutex);
  if (held.directories.contains(name)) return busy();
  const std::string path = absl::StrCat(made_as, "/", std::string(kLockName));
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  const auto fail = [&](int error, const char* what) {
    close(fd);
    return absl::ErrnoToStatus(error, absl::StrCat(path, ": ", what));
  };
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(fd, F_SETLK, &lock) != 0) {
    const int error = errno;
    if (error != EACCES && error != EAGAIN) return fail(error, "cannot lock");
    close(fd);
    return busy();
  }
  if (made_as != directory && rename(made_as.c_str(), directory.c_str()) != 0)
    return fail(errno, "cannot rename its directory");
  held.directories.insert(name);
  return std::unique_ptr<SpoolLock>(new SpoolLock(name, fd));
}

absl::StatusOr<std::unique_ptr<SpoolLock>> SpoolLock::Take(const std::string& directory) {
  return TakeAs(directory, directory);
}

absl::StatusOr<std::unique_ptr<SpoolLock>> SpoolLock::Make(const std::string& directory) {
  const fs::path wanted(directory);
  std::error_code error;
  if (fs::exists(wanted, error)) return Take(directory);
  const std::string made = (wanted.parent_path() / (".new-" + wanted.filename().string())).string();
  fs::create_directories(fs::path(made).parent_path(), error);
  // Only the user may read a spool, for any umask of the trainer.
  if (!error && mkdir(made.c_str(), 0700) != 0 && errno != EEXIST)
    error = std::error_code(errno, std::generic_category());
  if (!error && chmod(made.c_str(), 0700) != 0)
    error = std::error_code(errno, std::generic_category());
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("spool directory ", directory, ": ", error.message()));
  }
  auto lock = TakeAs(directory, made);
  if (!lock.ok()) fs::remove_all(made, error);
  return lock;
}

SpoolLock::~SpoolLock() {
  Held& held = HeldHere();
  const MutexLock guard(held.mutex);
  close(fd_);
  held.directories.erase(directory_);
}

void SpoolLock::RemoveDirectory() {
  std::error_code ignored;
  fs::remove(directory_ + "/" + std::string(kLockName), ignored);
  fs::remove(directory_, ignored);
}

std::string SpoolPath(const std::string& dir, v1::Role role, uint32_t rank, uint64_t stream_id) {
  char name[64];
  std::snprintf(name, sizeof(name), "%s-r%05u-%016llx",
                role == v1::ROLE_ROLLOUT ? "rollout" : "trainer", rank,
                static_cast<unsigned long long>(stream_id));
  return (fs::path(dir) / name).string();
}

std::vector<FoundSpool> FindSpools(const std::string& dir) {
  std::vector<FoundSpool> found;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    auto spool = ParseName(it->path().filename().string());
    if (!spool) continue;
    spool->path = it->path().string();
    found.push_back(*std::move(spool));
  }
  std::sort(found.begin(), found.end(),
            [](const FoundSpool& a, const FoundSpool& b) { return a.path < b.path; });
  return found;
}

absl::Status CreatePrivate(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  close(fd);
  return absl::OkStatus();
}

std::string SegmentPath(const std::string& directory, uint64_t first) {
  char name[32];
  std::snprintf(name, sizeof(name), "%020llu%s", static_cast<unsigned long long>(first),
                kSegmentSuffix.data());
  return directory + "/" + name;
}

std::vector<FoundSegment> FindSegments(const std::string& directory) {
  std::vector<FoundSegment> found;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.size() <= kSegmentSuffix.size() || !name.ends_with(kSegmentSuffix)) continue;
    FoundSegment segment;
    const std::string_view number(name.data(), name.size() - kSegmentSuffix.size());
    if (!ParseNumber(number, 10, &segment.first)) continue;
    segment.path = it->path().string();
    std::error_code no_size;
    segment.bytes = fs::file_size(it->path(), no_size);
    if (no_size) segment.bytes = 0;
    found.push_back(std::move(segment));
  }
  std::sort(found.begin(), found.end(),
            [](const FoundSegment& a, const FoundSegment& b) { return a.first < b.first; });
  return found;
}

}  // namespace plumbline::transport
