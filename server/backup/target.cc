#include "server/backup/target.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "server/journal/segments.h"
#include "server/process/health.h"

namespace plumbline::server {
namespace {

namespace fs = std::filesystem;

constexpr char kUnfinished[] = ".unfinished", kPrevious[] = ".previous";

bool LiesInside(const std::string& path, const std::string& folder) {
  std::error_code error;
  const fs::path inner = fs::weakly_canonical(path, error), outer = fs::canonical(folder, error);
  if (error) return false;
  const auto relative = inner.lexically_relative(outer);
  return !relative.empty() && *relative.begin() != "..";
}

// Returns OK if `directory` is free, or an older backup of the same journal.
absl::Status MayReplace(const std::string& directory, const std::string& id) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(directory, error))) return absl::OkStatus();
  if (!fs::is_directory(fs::symlink_status(directory, error)))
    return absl::FailedPreconditionError(
        absl::StrCat(directory, ": expected a free name or a folder, found another kind of file"));
  if (fs::is_empty(directory, error) && !error) return absl::OkStatus();
  if (error)
    return absl::UnavailableError(absl::StrCat(directory, ": cannot be listed: ", error.message()));
  auto older = ReadManifest(directory);
  if (!older.ok())
    return absl::FailedPreconditionError(absl::StrCat(
        directory,
        ": expected an empty folder or an older backup: ", std::string(older.status().message())));
  if (older->journal_id != id)
    return absl::FailedPreconditionError(absl::StrCat(
        directory, ": expected a backup of the journal ", id, ", found one of the journal ",
        older->journal_id, ", which may be the only one: use another folder"));
  return absl::OkStatus();
}

absl::Status RenameFolder(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat(from, ": cannot be renamed to ", to));
}

}  // namespace

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

absl::Status CheckFree(const std::string& folder, uint64_t bytes) {
  DiskSpace space;
  if (!SpaceOf(folder, &space) || space.free >= bytes + Health::kLeastFree) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(folder, ": expected ", (bytes >> 20) + 1, " MiB of free disk and ",
                   Health::kLeastFree >> 20, " MiB to spare, found ", space.free >> 20, " MiB"));
}

absl::StatusOr<BackupTarget> BackupTarget::Open(const std::string& directory,
                                                const std::string& data, const std::string& id) {
  if (LiesInside(directory, data))
    return absl::FailedPreconditionError(
        absl::StrCat(directory, ": is inside the data directory ", data, "; use another folder"));
  if (auto s = MayReplace(directory, id); !s.ok()) return s;
  const std::string path = directory + kUnfinished;
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be made"));
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be opened"));
  struct stat info {};
  if (fstat(fd, &info) != 0 || info.st_uid != geteuid() || fchmod(fd, 0700) != 0) {
    close(fd);
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": expected a folder of this user, found one of user ", info.st_uid));
  }
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": another plumbd writes a backup into it"));
  }
  // Removes the files of an interrupted process.
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    fs::remove_all(entry.path(), error);
    if (error) break;
  }
  if (error) {
    close(fd);
    return absl::UnavailableError(absl::StrCat(path, ": cannot be emptied: ", error.message()));
  }
  return BackupTarget(directory, path, fd);
}

BackupTarget::~BackupTarget() {
  if (fd_ < 0) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  close(fd_);
}

absl::Status BackupTarget::Finish(const Manifest& manifest) {
  auto older = ReadManifest(directory_);
  if (older.ok() && older->last_entry > manifest.last_entry)
    return absl::FailedPreconditionError(
        absl::StrCat(directory_, ": expected a backup up to entry ", manifest.last_entry,
                     " or older, found one ", "up to entry ", older->last_entry,
                     ", which is not overwritten: use another folder"));
  if (auto s = WriteManifest(path_, manifest); !s.ok()) return s;
  if (auto s = SyncAll(path_); !s.ok()) return s;
  if (auto s = Exchange(); !s.ok()) return s;
  close(std::exchange(fd_, -1));
  const fs::path parent = fs::path(directory_).parent_path();
  return SyncDirectory(parent.empty() ? "." : parent.string());
}

// Replaces the older backup, which keeps its name until the new one is complete. If this is
// interrupted in between, the older backup is DIR.previous.
absl::Status BackupTarget::Exchange() {
  const std::string previous = directory_ + kPrevious;
  std::error_code error;
  const bool older = fs::exists(directory_ + "/" + kManifest, error);
  if (!older) return RenameFolder(path_, directory_);
  fs::remove_all(previous, error);
  if (auto s = RenameFolder(directory_, previous); !s.ok()) return s;
  if (auto s = RenameFolder(path_, directory_); !s.ok()) {
    (void)RenameFolder(previous, directory_);
    return s;
  }
  fs::remove_all(previous, error);
  return absl::OkStatus();
}

}  // namespace plumbline::server
