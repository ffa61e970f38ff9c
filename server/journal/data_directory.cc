#include "server/journal/data_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/journal/segments.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

absl::Status Create(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error && std::filesystem::is_directory(directory, error)) return absl::OkStatus();
  const std::string what =
      absl::StrCat("--data ", directory, ": cannot be created: ", error.message());
  return error == std::errc::no_space_on_device ? absl::ResourceExhaustedError(what)
                                                : absl::InvalidArgumentError(what);
}

// Removes the access of group and others. Does not follow links. Returns 1 if it changed the mode.
int CloseOne(const std::filesystem::path& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || info.st_uid != geteuid()) return 0;
  if (S_ISLNK(info.st_mode) || (info.st_mode & 077) == 0) return 0;
  return chmod(path.c_str(), info.st_mode & 0700) == 0 ? 1 : 0;
}

// Closes files that an earlier process left open under another umask, or that were copied here.
void CloseToOthers(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  int closed = 0;
  for (fs::directory_iterator top(directory, error), end; !error && top != end;
       top.increment(error)) {
    if (!IsDataName(top->path().filename())) continue;
    closed += CloseOne(top->path());
    if (top->is_symlink(error) || !top->is_directory(error)) continue;
    for (fs::recursive_directory_iterator in(top->path(), error); !error && in != fs::end(in);
         in.increment(error)) {
      closed += CloseOne(in->path());
    }
  }
  if (closed > 0)
    LogInfo("--data {}: {} files and folders were accessible to other users; this was changed",
            directory, closed);
}

// Warns if others may look into the directory. If plumbd did not create it, its mode is the user's
// decision.
void ReportTheReaders(const std::string& directory) {
  struct stat info {};
  if (stat(directory.c_str(), &info) != 0 || (info.st_mode & 066) == 0) return;
  LogWarning(
      "--data {}: other users may {} this existing folder (mode {:03o}); they cannot read the "
      "files of plumbd in it; chmod 700 closes the folder too",
      directory, (info.st_mode & 022) != 0 ? "write to" : "list", info.st_mode & 0777);
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

// Databases and logs have companion files (-wal, .aside).
bool IsDataName(const std::string& name) {
  constexpr const char* kFolders[] = {"journal", "checkpoint", "capsules", "lock"};
  constexpr const char* kFiles[] = {"store.sqlite", "alerts.sqlite", "gaps.plg", "quarantine",
                                    "judging"};
  return std::find(std::begin(kFolders), std::end(kFolders), name) != std::end(kFolders) ||
         std::any_of(std::begin(kFiles), std::end(kFiles),
                     [&](const char* ours) { return name.rfind(ours, 0) == 0; });
}

absl::StatusOr<std::unique_ptr<DataDirectoryLock>> DataDirectoryLock::Take(
    const std::string& path) {
  const std::string name = path + "/lock";
  const int fd = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(name, ": cannot open"));
  std::unique_ptr<DataDirectoryLock> held(new DataDirectoryLock(fd));
  // The kernel releases the lock when the process ends, for any reason.
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return absl::ErrnoToStatus(errno, absl::StrCat(name, ": flock"));
    std::string holder = Holder(fd);
    while (!holder.empty() && holder.back() == '\n') holder.pop_back();
    return absl::FailedPreconditionError(absl::StrCat(
        "--data ", path, ": another plumbd uses this data directory (process ", holder, ")"));
  }
  const std::string id = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, id.data(), id.size(), 0) < 0) {
    // Only for display, so a full disk must not keep a server from starting.
  }
  return held;
}

DataDirectoryLock::~DataDirectoryLock() { close(fd_); }

absl::StatusOr<std::unique_ptr<DataDirectory>> DataDirectory::Open(const std::string& path) {
  if (auto s = Create(path); !s.ok()) return s;
  auto lock = DataDirectoryLock::Take(path);
  if (!lock.ok()) return lock.status();
  std::error_code error;
  if (std::filesystem::exists(path + "/" + kUnfinishedRestore, error))
    return absl::FailedPreconditionError(
        absl::StrCat("--data ", path, ": a restore into it was interrupted and is incomplete; ",
                     "plumbd restore DIR --data ", path, " completes it"));
  std::unique_ptr<DataDirectory> held(new DataDirectory(path, std::move(*lock)));
  for (const std::string& directory : {held->journal(), held->checkpoint()}) {
    if (auto s = Create(directory); !s.ok()) return s;
  }
  CloseToOthers(path);
  ReportTheReaders(path);
  auto journal_id = JournalId(held->journal() + "/id");
  if (!journal_id.ok()) return journal_id.status();
  held->journal_id_ = std::move(*journal_id);
  if (auto s = SyncDirectory(path); !s.ok()) return s;
  return held;
}

}  // namespace plumbline::server
