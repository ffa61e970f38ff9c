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

CheckpointWriter::CheckpointWriter(std::string directory, std::string tool_version)
    : directory_(std::move(directory)),
      tool_version_(std::move(tool_version)),
      temporary_(directory_ + "/unfinished") {
  std::error_code error;
  std::filesystem::remove(temporary_, error);
  auto log = FramedLogWriter::Open(temporary_);
  status_ = log.status();
  if (log.ok()) log_ = *std::move(log);
}

CheckpointWriter::~CheckpointWriter() {
  if (finished_) return;
  std::error_code error;
  std::filesystem::remove(temporary_, error);
}

void CheckpointWriter::Head(uint64_t entry, uint64_t event, int64_t unix_ns) {
  entry_ = entry;
  event_ = event;
  v1::CheckpointHeader header;
  header.set_schema(kSchema);
  header.set_tool_version(tool_version_);
  header.set_entry(entry);
  header.set_event(event);
  header.set_created_unix_ns(unix_ns);
  Append(FrameType::kCheckpointHeader, header.SerializeAsString());
}

void CheckpointWriter::Part(std::string_view name, std::string_view bytes) {
  if (parts_ == 0 || name != part_) ++parts_;
  part_ = name;
  do {
    const std::string_view piece = bytes.substr(0, kFrameBytes);
    bytes.remove_prefix(piece.size());
    const std::string_view parts[] = {name, std::string_view("\0", 1), piece};
    const FrameToAppend frame{FrameType::kCheckpointPart, parts};
    if (status_.ok()) status_ = log_->AppendAll({&frame, 1});
  } while (!bytes.empty() && status_.ok());
}

void CheckpointWriter::Append(FrameType type, std::string_view payload) {
  if (status_.ok()) status_ = log_->Append(type, payload);
}

absl::Status CheckpointWriter::Finish() {
  Append(FrameType::kCheckpointEnd, absl::StrCat(parts_));
  if (status_.ok()) status_ = log_->Sync();
  if (status_.ok()) status_ = Name();
  if (!status_.ok()) return status_;
  auto all = ListCheckpoints(directory_);
  if (!all.ok()) return all.status();
  std::error_code error;
  for (size_t i = kKept; i < all->size(); ++i) std::filesystem::remove((*all)[i].path, error);
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Name() {
  std::error_code error;
  const std::string name = NameOf(directory_, entry_, event_);
  std::filesystem::rename(temporary_, name, error);
  if (error) return absl::UnavailableError(absl::StrCat(name, ": ", error.message()));
  finished_ = true;
  return SyncDirectory(directory_);
}

absl::Status WriteCheckpoint(const std::string& directory, const std::string& tool_version,
                             const Checkpoint& checkpoint) {
  CheckpointWriter writer(directory, tool_version);
  writer.Head(checkpoint.entry, checkpoint.event, checkpoint.unix_ns);
  for (const auto& [name, bytes] : checkpoint.parts) writer.Part(name, bytes);
  return writer.Finish();
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
  return absl::DataLossError(
      absl::StrCat(path, ": ",
                   (*log)->error().empty()
                       ? absl::StrCat("byte ", (*log)->offset(), ": not a complete checkpoint")
                       : (*log)->error()));
}

}  // namespace plumbline::server
