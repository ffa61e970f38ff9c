#include "server/journal/segment_writer.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plumbline/v1/journal.pb.h"
#include "server/journal/format_check.h"
#include "server/journal/segments.h"

namespace plumbline::server {
namespace {

constexpr size_t kStreamsFrameBytes = 1u << 20;

uint64_t BytesOf(std::span<const FrameToAppend> frames) {
  constexpr uint64_t kFrameHeader = 64;  // an upper bound
  uint64_t size = 0;
  for (const FrameToAppend& frame : frames) {
    size += kFrameHeader;
    for (const std::string_view part : frame.parts) size += part.size();
  }
  return size;
}

// Returns the largest size of a file that RLIMIT_FSIZE allows.
uint64_t LargestFile() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return ~uint64_t{0};
  return limit.rlim_cur;
}

bool MayGrow(uint64_t size, std::span<const FrameToAppend> frames) {
  return size + BytesOf(frames) <= LargestFile();
}

// Explains a commit that can never fit, because "File too large" would not name the limit.
absl::Status NeverFits(uint64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "a commit of ", bytes, " bytes is larger than the file size limit of this process, ",
      LargestFile(),
      " bytes (ulimit -f, LimitFSIZE= of the unit); raise the limit, or run prlimit --pid ",
      getpid(), " --fsize=unlimited: plumbd then continues by itself"));
}

}  // namespace

absl::Status SegmentWriter::Commit(std::span<const FrameToAppend> frames, uint64_t first,
                                   int64_t unix_ns, const StreamPositions& streams) {
  const bool old =
      options_.segment_age.count() > 0 && unix_ns - begun_unix_ns_ >= options_.segment_age.count();
  if (log_ != nullptr && holds_entries_ &&
      (old || log_->size_bytes() >= options_.segment_bytes ||
       !MayGrow(log_->size_bytes(), frames))) {
    if (options_.sync == SyncPolicy::kInterval) {
      if (auto s = SyncNow(); !s.ok()) return s;
    }
    log_.reset();
  }
  if (log_ == nullptr) {
    if (auto s = Start(first, unix_ns, streams); !s.ok()) return s;
  }
  const uint64_t before = log_->size_bytes();
  if (!holds_entries_ && !MayGrow(before, frames)) return NeverFits(BytesOf(frames));
  if (auto s = log_->AppendAll(frames); !s.ok()) return s;
  if (options_.sync == SyncPolicy::kCommit) {
    if (auto s = log_->Sync(); !s.ok()) {
      Abandon(before);
      return s;
    }
  } else if (!unsynced_) {
    unsynced_ = true;
    unsynced_since_ = std::chrono::steady_clock::now();
  }
  holds_entries_ = true;
  return absl::OkStatus();
}

absl::Status SegmentWriter::Start(uint64_t first, int64_t unix_ns, const StreamPositions& streams) {
  path_ = SegmentPath(options_.directory, first);
  // A file of this name holds no held entry: no complete one, or only a failed commit.
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
  auto log = FramedLogWriter::Open(path_, JournalLogOptions());
  if (!log.ok()) return log.status();

  v1::JournalHeader header;
  header.set_schema(kJournalSchema);
  header.set_tool_version(options_.tool_version);
  header.set_first_entry(first);
  header.set_created_unix_ns(unix_ns);
  std::vector<std::string> payloads = streams.Encode(kStreamsFrameBytes);
  payloads.insert(payloads.begin(), header.SerializeAsString());
  std::vector<std::string_view> views(payloads.begin(), payloads.end());
  std::vector<FrameToAppend> frames;
  for (size_t i = 0; i < views.size(); ++i) {
    frames.push_back(
        {i == 0 ? FrameType::kJournalHeader : FrameType::kJournalStreams, {&views[i], 1}});
  }
  if (!MayGrow(0, frames)) return NeverFits(BytesOf(frames));
  if (auto s = (*log)->AppendAll(frames); !s.ok()) return s;
  log_ = std::move(*log);
  first_ = first;
  begun_unix_ns_ = unix_ns;
  holds_entries_ = false;
  unsynced_ = false;
  return absl::OkStatus();
}

// Ends the segment before the failed commit. If it cannot be cut, that does no harm: the next
// segment has entries of the same numbers, and a reader takes those.
void SegmentWriter::Abandon(uint64_t keep_bytes) {
  log_.reset();
  unsynced_ = false;
  std::error_code ignored;
  if (holds_entries_) {
    std::filesystem::resize_file(path_, keep_bytes, ignored);
  } else {
    std::filesystem::remove(path_, ignored);
  }
}

std::chrono::steady_clock::time_point SegmentWriter::sync_due() const {
  if (options_.sync != SyncPolicy::kInterval || !unsynced_) {
    return std::chrono::steady_clock::time_point::max();
  }
  return unsynced_since_ + options_.sync_interval;
}

absl::Status SegmentWriter::SyncIfDue(std::chrono::steady_clock::time_point now) {
  return now < sync_due() ? absl::OkStatus() : SyncNow();
}

absl::Status SegmentWriter::SyncNow() {
  if (log_ == nullptr || !unsynced_) return absl::OkStatus();
  unsynced_ = false;
  absl::Status synced = log_->Sync();
  if (!synced.ok()) log_.reset();
  return synced;
}

}  // namespace plumbline::server
