#include "server/capsules/capsule_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

namespace fs = std::filesystem;

constexpr char kPart[] = ".part";

absl::Status Failed(const std::string& path, const char* what) {
  const int error = errno;
  return absl::UnavailableError(
      absl::StrCat(path, ": cannot be ", what, ": ", std::generic_category().message(error)));
}

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return Failed(path, "read");
  return std::move(text).str();
}

absl::Status WriteAll(const std::string& path, int flags, std::string_view data, bool sync) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
  if (file < 0) return Failed(path, "written");
  absl::Status status;
  while (status.ok() && !data.empty()) {
    const ssize_t n = write(file, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) status = Failed(path, "written");
    if (n > 0) data.remove_prefix(static_cast<size_t>(n));
  }
  if (status.ok() && sync && fdatasync(file) != 0) status = Failed(path, "synced");
  close(file);
  return status;
}

uint64_t SizeOf(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : size;
}

}  // namespace

std::string CapsuleFiles::Folder(const v1::CapsuleInfo& info) const {
  return absl::StrCat(directory_, "/", info.finding().fingerprint());
}

std::string CapsuleFiles::Path(const v1::CapsuleInfo& info, const v1::Source& rank) const {
  return absl::StrCat(Folder(info), "/", rank.role() == v1::ROLE_ROLLOUT ? "rollout-" : "trainer-",
                      rank.rank());
}

absl::StatusOr<std::vector<v1::CapsuleInfo>> CapsuleFiles::Load() {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory_, ": cannot be created: ", error.message()));
  }
  std::vector<v1::CapsuleInfo> capsules;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, error)) {
    const auto bytes = ReadWhole(entry.path().string() + "/" + kCapsuleInfo);
    v1::CapsuleInfo info;
    if (!bytes.ok() || !info.ParseFromString(*bytes) ||
        info.finding().fingerprint() != entry.path().filename().string()) {
      continue;
    }
    for (v1::CapsuleRank& rank : *info.mutable_ranks()) {
      if (rank.state() == v1::CapsuleRank::STATE_ASKED) rank.set_bytes(Resumed(info, rank));
    }
    capsules.push_back(std::move(info));
  }
  if (error) return absl::UnavailableError(absl::StrCat(directory_, ": ", error.message()));
  return capsules;
}

// Returns how many bytes of an unfinished rank are kept. The last part carries the digest, and the
// process may have died before it checked it. So the last byte is always requested again.
uint64_t CapsuleFiles::Resumed(const v1::CapsuleInfo& info, const v1::CapsuleRank& rank) const {
  const std::string path = Path(info, rank.source()) + kPart;
  const uint64_t bytes = SizeOf(path);
  if (bytes == 0) return 0;
  std::error_code error;
  fs::resize_file(path, bytes - 1, error);
  if (!error) return bytes - 1;
  fs::remove(path, error);
  return 0;
}

absl::Status CapsuleFiles::Save(const v1::CapsuleInfo& info) {
  std::error_code error;
  fs::create_directories(Folder(info), error);
  const std::string path = Folder(info) + "/" + kCapsuleInfo;
  const std::string temporary = path + ".tmp";
  if (auto s = WriteAll(temporary, O_TRUNC, info.SerializeAsString(), true); !s.ok()) return s;
  return rename(temporary.c_str(), path.c_str()) == 0 ? absl::OkStatus() : Failed(path, "renamed");
}

void CapsuleFiles::Remove(const v1::CapsuleInfo& info) {
  std::error_code ignored;
  fs::remove_all(Folder(info), ignored);
}

void CapsuleFiles::RemoveRanks(const v1::CapsuleInfo& info) {
  std::error_code ignored;
  for (const v1::CapsuleRank& rank : info.ranks()) {
    fs::remove(Path(info, rank.source()), ignored);
    fs::remove(Path(info, rank.source()) + kPart, ignored);
  }
}

absl::Status CapsuleFiles::Append(const v1::CapsuleInfo& info, const v1::Source& rank,
                                  std::string_view data) {
  return WriteAll(Path(info, rank) + kPart, O_APPEND, data, false);
}

void CapsuleFiles::Truncate(const v1::CapsuleInfo& info, const v1::Source& rank) {
  std::error_code ignored;
  fs::remove(Path(info, rank) + kPart, ignored);
}

absl::StatusOr<std::string> CapsuleFiles::ReadPart(const v1::CapsuleInfo& info,
                                                   const v1::Source& rank) {
  return ReadWhole(Path(info, rank) + kPart);
}

absl::Status CapsuleFiles::Keep(const v1::CapsuleInfo& info, const v1::Source& rank) {
  const std::string path = Path(info, rank);
  if (auto s = WriteAll(path + kPart, O_APPEND, "", true); !s.ok()) return s;
  return rename((path + kPart).c_str(), path.c_str()) == 0 ? absl::OkStatus()
                                                           : Failed(path, "renamed");
}

}  // namespace plumbline::server
