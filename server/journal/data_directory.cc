#include "server/journal/data_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/journal/segments.h"

namespace plumbline::server {
namespace {

absl::Status Create(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error && std::filesystem::is_directory(directory, error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--data ", directory, ": cannot be created: ", error.message()));
}

std::string Holder(int fd) {
  char text[32] = {};
  const ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
  return n > 0 ? std::string(text, static_cast<size_t>(n)) : "unknown\n";
}

absl::StatusOr<std::string> JournalId(const std::string& path) {
  std::string id;
  if (std::ifstream(path) >> id) return id;
  std::random_device random;
  id = absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
  std::ofstream out(path);
  if (out << id << "\n" && out.flush()) return id;
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot write"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataDirectory>> DataDirectory::Open(const std::string& path) {
  for (const std::string& directory : {path, path + "/journal", path + "/checkpoint"}) {
    if (auto s = Create(directory); !s.ok()) return s;
  }
  const std::string name = path + "/lock";
  const int fd = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(name, ": cannot open"));
  std::unique_ptr<DataDirectory> held(new DataDirectory(path, fd));
  // The kernel lets go of it when the process ends, however it ends.
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return absl::ErrnoToStatus(errno, absl::StrCat(name, ": flock"));
    std::string holder = Holder(fd);
    while (!holder.empty() && holder.back() == '\n') holder.pop_back();
    return absl::FailedPreconditionError(absl::StrCat(
        "--data ", path, ": another plumbd keeps its journal there (process ", holder, ")"));
  }
  const std::string id = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, id.data(), id.size(), 0) < 0) {
    // For people alone: a full disk must not keep a server from starting.
  }
  auto journal_id = JournalId(held->journal() + "/id");
  if (!journal_id.ok()) return journal_id.status();
  held->journal_id_ = std::move(*journal_id);
  if (auto s = SyncDirectory(path); !s.ok()) return s;
  return held;
}

DataDirectory::~DataDirectory() { close(lock_); }

}  // namespace plumbline::server
