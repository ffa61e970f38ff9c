// Capsules on disk: a directory each under DATA/capsules, named by the finding's fingerprint.
//
//   info.pb       v1::CapsuleInfo, replaced whole
//   ROLE-RANK     what a rank sent: a v1::Batch
//   ROLE-RANK.part  the same while it arrives
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/capsule.pb.h"

namespace plumbline::server {

// The state of a capsule, in its folder. A folder without this file is ignored.
inline constexpr char kCapsuleInfo[] = "info.pb";

// Not thread-safe, except Path. Errors name the file.
class CapsuleFiles {
 public:
  explicit CapsuleFiles(std::string directory) : directory_(std::move(directory)) {}

  // Creates the directory. Returns the readable capsules in it; the bytes of their ranks are those
  // present.
  absl::StatusOr<std::vector<v1::CapsuleInfo>> Load();

  absl::Status Save(const v1::CapsuleInfo& info);
  void Remove(const v1::CapsuleInfo& info);       // removes the whole capsule
  void RemoveRanks(const v1::CapsuleInfo& info);  // removes the bytes that ranks sent

  absl::Status Append(const v1::CapsuleInfo& info, const v1::Source& rank, std::string_view data);
  void Truncate(const v1::CapsuleInfo& info, const v1::Source& rank);
  absl::StatusOr<std::string> ReadPart(const v1::CapsuleInfo& info, const v1::Source& rank);
  // Renames the part, which is complete and checked.
  absl::Status Keep(const v1::CapsuleInfo& info, const v1::Source& rank);

  // Returns the path of the bytes that a rank sent, once they are complete.
  std::string Path(const v1::CapsuleInfo& info, const v1::Source& rank) const;

 private:
  uint64_t Resumed(const v1::CapsuleInfo& info, const v1::CapsuleRank& rank) const;
  std::string Folder(const v1::CapsuleInfo& info) const;

  const std::string directory_;
};

}  // namespace plumbline::server
