#include "server/journal/checkpoint_file.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/framed_log.h"
#include "plumbline/v1/journal.pb.h"
#include "server/journal/segments.h"

namespace plumbline::server {
namespace {

constexpr char kSchema[] = "plumbline.checkpoint/1";
constexpr size_t kKept = 2;
constexpr size_t kFrameBytes = 16u << 20;

std::string NameOf(const std::string& directory, uint64_t entry, uint64_t event) {
  return absl::StrFormat("%s/%020d-%020d.plc", directory, entry, event);
}

bool ParseName(const std::string& name, CheckpointName* out) {
  unsigned long long entry = 0, event = 0;
  int used = 0;
  if (std::sscanf(name.c_str(), "%20llu-%20llu.plc%n", &entry, &event, &used) != 2 || used != 45 ||
      name.size() != 45) {
    return false;
  }
  out->entry = entry;
  out->event = event;
  return true;
}

absl::Status AppendPart(FramedLogWriter& log, const std::string& name, std::string_view bytes) {
  do {
    const std::string_view piece = bytes.substr(0, kFrameBytes);
    bytes.remove_prefix(piece.size());
    const std::string_view parts[] = {name, std::string_view("\0", 1), piece};
    const FrameToAppend frame{FrameType::kCheckpointPart, parts};
    if (auto s = log.AppendAll({&frame, 1}); !s.ok()) return s;
  } while (!bytes.empty());
  return absl::OkStatus();
}

absl::Status WriteTo(const std::string& path, const std::string& tool_version,
                     const Checkpoint& checkpoint) {
  auto log = FramedLogWriter::Open(path);
  if (!log.ok()) return log.status();
  v1::CheckpointHeader header;
  header.set_schema(kSchema);
  header.set_tool_version(tool_version);
  header.set_entry(checkpoint.entry);
  header.set_event(checkpoint.event);
  header.set_created_unix_ns(checkpoint.unix_ns);
  if (auto s = (*log)->Append(FrameType::kCheckpointHeader, header.SerializeAsString()); !s.ok()) {
    return s;
  }
  for (const auto& [name, bytes] : checkpoint.parts) {
    if (auto s = AppendPart(**log, name, bytes); !s.ok()) return s;
  }
  const std::string count = absl::StrCat(checkpoint.parts.size());
  if (auto s = (*log)->Append(FrameType::kCheckpointEnd, count); !s.ok()) return s;
  return (*log)->Sync();
}

bool TakePart(const std::string& payload, Checkpoint* out) {
  const size_t zero = payload.find('\0');
  if (zero == std::string::npos) return false;
  out->parts[payload.substr(0, zero)].append(payload, zero + 1, std::string::npos);
  return true;
}

bool TakeHeader(const std::string& payload, Checkpoint* out) {
  v1::CheckpointHeader header;
  if (!header.ParseFromString(payload) || header.schema() != kSchema) return false;
  out->entry = header.entry();
  out->event = header.event();
  out->unix_ns = header.created_unix_ns();
  return true;
}

}  // namespace

absl::Status WriteCheckpoint(const std::string& directory, const std::string& tool_version,
                             const Checkpoint& checkpoint) {
  const std::string temporary = directory + "/unfinished";
  std::error_code error;
  std::filesystem::remove(temporary, error);
  absl::Status status = WriteTo(temporary, tool_version, checkpoint);
  if (status.ok()) {
    const std::string name = NameOf(directory, checkpoint.entry, checkpoint.event);
    std::filesystem::rename(temporary, name, error);
    if (error) status = absl::UnavailableError(absl::StrCat(name, ": ", error.message()));
  }
  if (status.ok()) status = SyncDirectory(directory);
  if (!status.ok()) {
    std::filesystem::remove(temporary, error);
    return status;
  }
  auto all = ListCheckpoints(directory);
  if (!all.ok()) return all.status();
  for (size_t i = kKept; i < all->size(); ++i) std::filesystem::remove((*all)[i].path, error);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CheckpointName>> ListCheckpoints(const std::string& directory) {
  std::vector<CheckpointName> all;
  std::error_code error;
  std::filesystem::directory_iterator it(directory, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    CheckpointName name;
    if (!ParseName(it->path().filename().string(), &name)) continue;
    name.path = it->path().string();
    all.push_back(std::move(name));
  }
  if (error) {
    return absl::UnavailableError(absl::StrCat(directory, ": cannot be listed: ", error.message()));
  }
  std::sort(all.begin(), all.end(), [](const CheckpointName& a, const CheckpointName& b) {
    return std::pair(a.entry, a.event) > std::pair(b.entry, b.event);
  });
  return all;
}

absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path) {
  auto log = FramedLogReader::Open(path);
  if (!log.ok()) return log.status();
  Checkpoint checkpoint;
  bool header = false;
  FrameType type;
  std::string payload;
  while ((*log)->Next(&type, &payload) == FramedLogReader::Result::kFrame) {
    if (type == FrameType::kCheckpointEnd) {
      if (!header || payload != absl::StrCat(checkpoint.parts.size())) break;
      return checkpoint;
    }
    const bool good = type == FrameType::kCheckpointHeader ? TakeHeader(payload, &checkpoint)
                      : type == FrameType::kCheckpointPart ? TakePart(payload, &checkpoint)
                                                           : true;
    if (!good) break;
    header |= type == FrameType::kCheckpointHeader;
  }
  return absl::DataLossError(absl::StrCat(
      path, ": ",
      (*log)->error().empty() ? absl::StrCat("byte ", (*log)->offset(), ": not a whole checkpoint")
                              : (*log)->error()));
}

}  // namespace plumbline::server
