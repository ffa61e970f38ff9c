#include "server/journal/format_check.h"

#include <array>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/framed_log.h"
#include "plumbline/v1/journal.pb.h"
#include "server/journal/entry.h"
#include "server/journal/segments.h"

namespace plumbline::server {
namespace {

constexpr uint32_t kFileVersion = 1;  // of base/framed_log_format.h

absl::Status Other(const std::string& path, const std::string& found, const std::string& by) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": expected the format ", kJournalSchema, ", found ", found,
                   by.empty() ? "" : " by plumbd ", by,
                   ": start that version, or this one with another data directory "
                   "(docs/operating.md); no file was changed"));
}

// Returns 0 if the file is not a framed log, or its header is damaged.
uint32_t FileVersionOf(const std::string& path) {
  std::array<char, 16> header{};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(header.data(), header.size())) return 0;
  uint32_t version = 0, checksum = 0;
  std::memcpy(&version, header.data() + 8, 4);
  std::memcpy(&checksum, header.data() + 12, 4);
  const bool whole = FramedLogReader::Recognise({header.data(), header.size()}) &&
                     checksum == Crc32c(header.data(), 12);
  return whole ? version : 0;
}

absl::Status Check(const std::string& path) {
  const uint32_t version = FileVersionOf(path);
  if (version == 0) return absl::OkStatus();
  if (version != kFileVersion) return Other(path, absl::StrCat("a file of version ", version), "");
  auto log = FramedLogReader::Open(path, JournalLogOptions());
  FrameType type;
  std::string payload;
  v1::JournalHeader header;
  if (!log.ok() || (*log)->Next(&type, &payload) != FramedLogReader::Result::kFrame ||
      type != FrameType::kJournalHeader || !header.ParseFromString(payload) ||
      header.schema() == kJournalSchema || header.schema() == kPackedSchema) {
    return absl::OkStatus();
  }
  return Other(path, header.schema(), header.tool_version());
}

}  // namespace

absl::Status CheckJournalFormat(const std::string& directory) {
  auto segments = ListSegments(directory);
  if (!segments.ok()) return segments.status();
  for (const Segment& segment : *segments) {
    if (auto s = Check(segment.path); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace plumbline::server
