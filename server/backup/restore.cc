#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/backup/backup.h"
#include "server/backup/file_copy.h"
#include "server/backup/manifest.h"
#include "server/backup/target.h"
#include "server/journal/data_directory.h"
#include "server/journal/segments.h"

namespace plumbline::server {
namespace {

namespace fs = std::filesystem;

class Restore {
 public:
  Restore(std::string directory, const std::string& data)
      : directory_(std::move(directory)), data_(data) {}

  absl::StatusOr<std::string> Run() {
    auto manifest = ReadManifest(directory_);
    if (!manifest.ok()) return manifest.status();
    manifest_ = std::move(*manifest);
    if (auto s = CheckFiles(directory_, manifest_); !s.ok()) return s;
    if (auto s = Take(); !s.ok()) return s;
    for (const auto& step : {&Restore::Prepare, &Restore::CopyAll, &Restore::Arrive}) {
      if (auto s = (this->*step)(); !s.ok()) return s;
    }
    return absl::StrFormat("%s: entries %d to %d, newest checkpoint at entry %d; %d files, checked",
                           data_, manifest_.first_entry, manifest_.last_entry,
                           manifest_.checkpoint_entry, manifest_.files.size());
  }

 private:
  // If a service's folder is a symlink to a folder that is gone (DynamicUser=), makes that folder.
  absl::Status Take() {
    std::error_code error;
    fs::path real = WithoutSlash(data_);
    for (int links = 0; links < 40 && fs::is_symlink(real, error); ++links)
      real = real.parent_path() / fs::read_symlink(real, error);  // an absolute path replaces it
    fs::create_directories(real.parent_path(), error);            // mkdir reports what failed
    if (mkdir(real.c_str(), 0700) != 0 && errno != EEXIST)
      return absl::ErrnoToStatus(errno, absl::StrCat(real.string(), ": cannot be made"));
    if (stat(real.c_str(), &folder_) != 0 || !S_ISDIR(folder_.st_mode))
      return absl::FailedPreconditionError(
          absl::StrCat("--data ", data_, ": expected a folder, or a free name in one"));
    data_ = real;
    auto lock = DataDirectoryLock::Take(data_);
    if (!lock.ok()) return lock.status();
    lock_ = std::move(*lock);
    Own(data_ + "/lock");
    return absl::OkStatus();
  }

  // Checks that the folder is empty, except for the lock. Removes the files of an interrupted
  // restore.
  absl::Status Prepare() {
    const std::string mark = data_ + "/" + kUnfinishedRestore;
    std::error_code error;
    const bool cut_off = fs::exists(mark, error);
    for (const auto& entry : fs::directory_iterator(data_, error)) {
      if (entry.path().filename() == "lock" || entry.path() == mark) continue;
      if (!cut_off || !IsDataName(entry.path().filename()))
        return absl::FailedPreconditionError(
            absl::StrCat("--data ", data_, ": expected an empty folder, found ",
                         entry.path().filename().string(), "; move it elsewhere first"));
      fs::remove_all(entry.path(), error);
    }
    if (!error) fs::remove_all(mark, error);
    if (error)
      return absl::UnavailableError(absl::StrCat(data_, ": cannot be emptied: ", error.message()));
    if (auto s = CheckFree(data_, manifest_.bytes()); !s.ok()) return s;
    return MakeFolder(mark);
  }

  absl::Status CopyAll() {
    const std::string to = data_ + "/" + kUnfinishedRestore;
    for (const auto& [name, digest] : manifest_.files) {
      if (auto s = MakeFoldersOf(to, name); !s.ok()) return s;
      auto from = PinnedFile::Open(directory_ + "/" + name);
      if (!from.ok()) return from.status();
      const std::string path = to + "/" + name;
      if (auto copied = CopyFile(*from, path); !copied.ok()) return copied.status();
      Own(path);
    }
    if (auto s = SyncAll(to); !s.ok()) return s;
    return CheckFiles(to, manifest_);
  }

  // Moves all parts to their places. Removes the mark last, because plumbd does not start here
  // while the mark exists.
  absl::Status Arrive() {
    const std::string mark = data_ + "/" + kUnfinishedRestore;
    std::error_code error;
    for (fs::directory_iterator it(mark, error); !error && it != fs::directory_iterator();
         it = fs::directory_iterator(mark, error)) {
      fs::rename(it->path(), data_ + "/" + it->path().filename().string(), error);
      if (error) break;
    }
    if (error)
      return absl::UnavailableError(absl::StrCat(mark, ": cannot be moved: ", error.message()));
    if (auto s = SyncDirectory(data_); !s.ok()) return s;
    fs::remove(mark, error);
    return SyncDirectory(data_);
  }

  absl::Status MakeFoldersOf(const std::string& to, const fs::path& name) {
    fs::path folder = to;
    for (const fs::path& part : name.parent_path()) {
      folder /= part;
      if (auto s = MakeFolder(folder); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  absl::Status MakeFolder(const std::string& path) {
    if (mkdir(path.c_str(), 0700) == 0) {
      Own(path);
    } else if (errno != EEXIST) {
      return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be made"));
    }
    return absl::OkStatus();
  }

  // Gives `path` to the owner of the folder, which runs the server. Only root can do that.
  void Own(const std::string& path) const {
    if (geteuid() != 0) return;
    if (lchown(path.c_str(), folder_.st_uid, folder_.st_gid) != 0) {
      // A file system without owners: its files belong to the user that mounted it.
    }
  }

  const std::string directory_;
  std::string data_;
  Manifest manifest_;
  struct stat folder_ {};  // of data_
  std::unique_ptr<DataDirectoryLock> lock_;
};

}  // namespace

absl::StatusOr<std::string> RestoreBackup(const std::string& directory, const std::string& data) {
  return Restore(WithoutSlash(directory), data).Run();
}

}  // namespace plumbline::server
