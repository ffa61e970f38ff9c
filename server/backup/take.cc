// Takes a backup. README.md of this folder states the order of the copies and the reasons.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/open_files.h"
#include "server/backup/backup.h"
#include "server/backup/capsule_copy.h"
#include "server/backup/copy_check.h"
#include "server/backup/file_copy.h"
#include "server/backup/manifest.h"
#include "server/backup/target.h"
#include "server/journal/checkpoint_file.h"
#include "server/journal/format_check.h"
#include "server/journal/segments.h"
#include "server/process/health.h"
#include "server/store/database.h"

namespace plumbline::server {
namespace {

namespace fs = std::filesystem;

constexpr int kNice = 10;
constexpr int kListTries = 100;  // tries, if the list of checkpoints changes while its files are
                                 // opened

// Files and databases of DATA that are copied whole, if the server has them.
constexpr const char* kDatabases[] = {"store.sqlite", "alerts.sqlite"};
constexpr const char* kAfterTheJournal[] = {"gaps.plg", "quarantine"};
// Every started server has these files, and no other file has their content.
constexpr const char* kAlways[] = {"alerts.sqlite", "gaps.plg", "capsules"};

std::string NameOf(const fs::path& path) { return path.filename(); }

class Backup {
 public:
  Backup(std::string data, std::string directory, const std::string& tool_version)
      : data_(std::move(data)), directory_(std::move(directory)) {
    manifest_.tool_version = tool_version;
    manifest_.unix_ns = static_cast<int64_t>(UnixNs());
  }

  absl::StatusOr<std::string> Run() {
    if (auto s = CheckSource(); !s.ok()) return s;
    auto target = BackupTarget::Open(directory_, data_, manifest_.journal_id);
    if (!target.ok()) return target.status();
    to_ = target->path();
    for (const auto& step : {&Backup::PinCheckpoints, &Backup::PinSegments, &Backup::CheckSpace,
                             &Backup::CopyDatabases, &Backup::PinSegments, &Backup::CopyPinned,
                             &Backup::CopyRest, &Backup::CheckAll}) {
      if (auto s = (this->*step)(); !s.ok()) return s;
    }
    if (auto s = target->Finish(manifest_); !s.ok()) return s;
    return Summary();
  }

 private:
  absl::Status CheckSource() {
    const auto id = PinnedFile::OpenBelow(data_, "journal/id");
    if (!id.ok() && !absl::IsNotFound(id.status())) return id.status();
    if (id.ok()) {
      auto bytes = BytesOf(*id);
      if (!bytes.ok()) return bytes.status();
      std::istringstream(*bytes) >> manifest_.journal_id;
    }
    if (manifest_.journal_id.empty()) {
      return absl::NotFoundError(
          absl::StrCat(data_, "/journal/id: expected the name of a journal, found none: is ", data_,
                       " the data directory of a plumbd?"));
    }
    for (const char* name : kAlways) {
      if (access(absl::StrCat(data_, "/", name).c_str(), F_OK) != 0)
        return absl::ErrnoToStatus(
            errno, absl::StrCat(data_, "/", name,
                                ": is missing, so the backup would be incomplete; restart plumbd, "
                                "which makes an empty one, or restore an older backup"));
    }
    return CheckJournalFormat(data_ + "/journal");
  }

  // The server keeps the two newest and may remove one between the listing and the opening.
  absl::Status PinCheckpoints() {
    for (int i = 0;; ++i) {
      checkpoints_.clear();
      auto names = ListCheckpoints(data_ + "/checkpoint");
      if (!names.ok()) return names.status();
      absl::Status status;
      for (const CheckpointName& name : *names) {
        auto file = PinnedFile::OpenBelow(data_, "checkpoint/" + NameOf(name.path));
        if (!file.ok()) status = file.status();
        if (file.ok()) checkpoints_.push_back(std::move(*file));
      }
      if (status.ok() || !absl::IsNotFound(status) || i == kListTries) return status;
    }
  }

  // Opens the segments that are not open yet. The server creates segments in the order of their
  // numbers, so a later listing lacks only segments that retention removed. The newest segment of
  // an earlier call is opened again, because a failed commit may have replaced it.
  absl::Status PinSegments() {
    const auto seen = ListSegments(data_ + "/journal");
    if (!seen.ok()) return seen.status();
    const auto all = ListSegments(data_ + "/journal");
    if (!all.ok()) return all.status();
    RaiseOpenFiles(seen->size() + 256);
    const uint64_t newest = segments_.empty() ? 0 : segments_.rbegin()->first;
    for (const Segment& segment : *all) {
      if (seen->empty() || segment.first > seen->back().first) break;
      if (segment.first < newest) continue;
      auto file = PinnedFile::OpenBelow(data_, "journal/" + NameOf(segment.path));
      if (absl::IsNotFound(file.status())) continue;  // gaps.plg lists it
      if (!file.ok()) return file.status();
      segments_.insert_or_assign(segment.first, std::move(*file));
    }
    return absl::OkStatus();
  }

  // A backup must not fill the disk of the journal: the server could then acknowledge nothing.
  absl::Status CheckSpace() {
    uint64_t bytes = 0;
    for (const PinnedFile& file : checkpoints_) bytes += file.size();
    for (const auto& [first, file] : segments_) bytes += file.size();
    std::error_code error;
    for (const char* name : kDatabases) {
      const auto size = fs::file_size(data_ + "/" + name, error);
      if (!error) bytes += size;
    }
    return CheckFree(to_, bytes);
  }

  absl::Status CopyDatabases() {
    for (const std::string name : kDatabases) {
      const std::string path = data_ + "/" + name;
      std::error_code error;
      if (!fs::exists(path, error) && !error) continue;
      auto database = Database::Open(path, Database::Mode::kReadOnly);
      if (!database.ok()) return database.status();
      if (auto s = (*database)->CopyTo(to_ + "/" + name); !s.ok()) return s;
      auto digest = DigestOf(to_ + "/" + name);
      if (!digest.ok()) return digest.status();
      manifest_.files[name] = *digest;
    }
    return absl::OkStatus();
  }

  absl::Status CopyPinned() {
    for (const char* folder : {"checkpoint", "journal"}) {
      std::error_code error;
      if (!fs::create_directory(to_ + "/" + folder, error))
        return absl::UnavailableError(
            absl::StrCat(to_, "/", folder, ": cannot be made: ", error.message()));
    }
    for (const PinnedFile& file : checkpoints_) {
      if (auto s = Copy(file, "checkpoint/"); !s.ok()) return s;
    }
    for (const auto& [first, file] : segments_) {
      if (auto s = Copy(file, "journal/"); !s.ok()) return s;
    }
    return CopyNamed("journal/id");
  }

  absl::Status CopyRest() {
    for (const char* name : kAfterTheJournal) {
      if (auto s = CopyNamed(name); !s.ok() && !absl::IsNotFound(s)) return s;
    }
    return CopyCapsules(data_, to_, &manifest_.files);
  }

  absl::Status CopyNamed(const std::string& name) {
    auto file = PinnedFile::OpenBelow(data_, name);
    if (!file.ok()) return file.status();
    const size_t slash = name.rfind('/');
    return Copy(*file, slash == std::string::npos ? "" : name.substr(0, slash + 1));
  }

  absl::Status Copy(const PinnedFile& file, const std::string& folder) {
    const std::string name = folder + NameOf(file.path());
    auto digest = CopyFile(file, to_ + "/" + name);
    if (!digest.ok()) return digest.status();
    manifest_.files[name] = *digest;
    return absl::OkStatus();
  }

  // If the server was writing a commit, the newest segment ends in the middle of this commit. That
  // commit was not acknowledged, and is cut off.
  absl::Status CheckAll() {
    auto state = CheckCopy(to_);
    if (!state.ok()) return state.status();
    state_ = std::move(*state);
    manifest_.first_entry = state_.first_entry;
    manifest_.last_entry = state_.last_entry;
    manifest_.checkpoint_entry = state_.checkpoint_entry;
    if (!state_.last_segment.empty()) {
      const int fd = open(state_.last_segment.c_str(), O_WRONLY | O_CLOEXEC);
      const bool cut = fd >= 0 && ftruncate(fd, static_cast<off_t>(state_.whole_bytes)) == 0;
      const int error = errno;
      if (fd >= 0) close(fd);
      if (!cut)
        return absl::ErrnoToStatus(error, absl::StrCat(state_.last_segment, ": cannot be cut"));
      auto digest = DigestOf(state_.last_segment);
      if (!digest.ok()) return digest.status();
      manifest_.files["journal/" + fs::path(state_.last_segment).filename().string()] = *digest;
    }
    if (auto s = SyncAll(to_); !s.ok()) return s;
    return CheckFiles(to_, manifest_);
  }

  std::string Summary() const {
    const auto capsules =
        std::count_if(manifest_.files.begin(), manifest_.files.end(),
                      [](const auto& file) { return file.first.ends_with("/info.pb"); });
    std::string out = absl::StrFormat(
        "%s: entries %d to %d, %d checkpoints (newest at entry %d), %d capsules; %d files, %.1f "
        "MiB, checked",
        directory_, manifest_.first_entry, manifest_.last_entry, state_.checkpoints,
        manifest_.checkpoint_entry, capsules, manifest_.files.size(),
        static_cast<double>(manifest_.bytes()) / (1 << 20));
    if (!manifest_.files.contains("store.sqlite"))
      absl::StrAppend(&out, "; the server has no store.sqlite, a start makes it from the journal");
    if (state_.known_lost > 0)
      absl::StrAppend(&out, "; ", state_.known_lost,
                      " entries were already missing and are listed as gaps");
    return out;
  }

  const std::string data_, directory_;
  std::string to_;  // the folder that is filled
  std::vector<PinnedFile> checkpoints_;
  std::map<uint64_t, PinnedFile> segments_;  // by their first entry
  CopyState state_;
  Manifest manifest_;
};

}  // namespace

absl::StatusOr<std::string> TakeBackup(const std::string& data, const std::string& directory,
                                       const std::string& tool_version) {
  // A lower priority than ingest, but not the idle class: on a disk that is always busy, an idle
  // process would never end.
  (void)setpriority(PRIO_PROCESS, 0, kNice);
  return Backup(data, WithoutSlash(directory), tool_version).Run();
}

}  // namespace plumbline::server
