#include "server/backup/capsule_copy.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plumbline/v1/capsule.pb.h"
#include "server/capsules/capsule_files.h"

namespace plumbline::server {
namespace {

namespace fs = std::filesystem;

constexpr char kFolder[] = "capsules";
constexpr int kCapsuleTries = 20;  // of a capsule that changes while it is copied

// Returns the sorted names in `folder`; none if there is no such folder.
absl::StatusOr<std::vector<std::string>> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error))
    names.push_back(it->path().filename());
  if (error && error != std::errc::no_such_file_or_directory)
    return absl::UnavailableError(
        absl::StrCat(folder.string(), ": cannot be listed: ", error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the first file of a held rank that was not copied; empty: none is missing.
std::string Missing(const std::string& info_bytes, const std::string& capsules,
                    const fs::path& copied_below) {
  v1::CapsuleInfo info;
  if (!info.ParseFromString(info_bytes)) return "";  // the server ignores this capsule
  const CapsuleFiles source(capsules), copied(copied_below);
  for (const v1::CapsuleRank& rank : info.ranks()) {
    if (rank.state() != v1::CapsuleRank::STATE_HELD) continue;
    if (!fs::exists(copied.Path(info, rank.source()))) return source.Path(info, rank.source());
  }
  return "";
}

class CapsuleCopy {
 public:
  CapsuleCopy(const std::string& data, const std::string& to,
              std::map<std::string, FileDigest>* files)
      : data_(data), from_(fs::path(data) / kFolder), to_(fs::path(to) / kFolder), files_(files) {}

  absl::Status Run() {
    auto names = NamesIn(from_);
    if (!names.ok()) return names.status();
    std::error_code error;
    if (!names->empty()) fs::create_directory(to_, error);
    for (const std::string& name : *names) {
      if (auto s = CopyOne(name); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

 private:
  // Copies one capsule; repeats the copy if the server changed the capsule meanwhile.
  absl::Status CopyOne(const std::string& name) {
    for (int i = 0; i < kCapsuleTries; ++i) {
      const auto info = ReadInfo(name);
      if (absl::IsNotFound(info.status())) return absl::OkStatus();  // just begun, or removed
      if (!info.ok()) return info.status();
      std::map<std::string, FileDigest> copied;
      absl::Status status = CopyFolder(name, &copied);
      const auto after = ReadInfo(name);
      const bool same = after.ok() && *after == *info;
      const std::string missing = Missing(*info, from_, to_);
      if (status.ok() && same && missing.empty()) {
        files_->merge(copied);
        return absl::OkStatus();
      }
      std::error_code ignored;
      fs::remove_all(to_ / name, ignored);
      if (!status.ok()) return status;
      if (same)
        return absl::DataLossError(absl::StrCat(missing, ": expected the part of a rank that ",
                                                name, "/", kCapsuleInfo, " lists, found none"));
    }
    return absl::UnavailableError(absl::StrCat((from_ / name).string(), ": changed ", kCapsuleTries,
                                               " times while it was copied"));
  }

  absl::Status CopyFolder(const std::string& name, std::map<std::string, FileDigest>* copied) {
    std::error_code error;
    fs::create_directory(to_ / name, error);
    auto files = NamesIn(from_ / name);
    if (!files.ok()) return files.status();
    for (const std::string& file : *files) {
      if (file.ends_with(".tmp")) continue;
      auto pinned = OpenOf(name, file);
      if (absl::IsNotFound(pinned.status())) continue;  // renamed, or removed
      if (!pinned.ok()) return pinned.status();
      auto digest = CopyFile(*pinned, to_ / name / file);
      if (!digest.ok()) return digest.status();
      (*copied)[absl::StrCat(kFolder, "/", name, "/", file)] = *digest;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<PinnedFile> OpenOf(const std::string& capsule, const std::string& file) const {
    return PinnedFile::OpenBelow(data_, absl::StrCat(kFolder, "/", capsule, "/", file));
  }
  absl::StatusOr<std::string> ReadInfo(const std::string& capsule) const {
    const auto file = OpenOf(capsule, kCapsuleInfo);
    if (!file.ok()) return file.status();
    return BytesOf(*file);
  }

  const std::string data_;
  const fs::path from_, to_;
  std::map<std::string, FileDigest>* const files_;
};

}  // namespace

absl::Status CopyCapsules(const std::string& data, const std::string& to,
                          std::map<std::string, FileDigest>* files) {
  return CapsuleCopy(data, to, files).Run();
}

}  // namespace plumbline::server
