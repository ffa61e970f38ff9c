// Appends commits to the journal's newest segment and decides when a commit is safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "base/framed_log.h"
#include "server/journal/stream_positions.h"

namespace plumbline::server {

// When what was written counts as held.
enum class SyncPolicy {
  kCommit,    // after fdatasync: survives the host
  kInterval,  // at once; synced every so often: survives the process, the host but for the last
              // interval
  kNever,     // at once; the kernel writes when it likes: survives the process
};

struct SegmentOptions {
  std::string directory;  // must exist
  std::string tool_version;
  SyncPolicy sync = SyncPolicy::kCommit;
  std::chrono::nanoseconds sync_interval = std::chrono::seconds(1);
  uint64_t segment_bytes = 256u << 20;
  // One that was begun so long ago takes no more entries: what is old lies apart. 0: no limit.
  std::chrono::nanoseconds segment_age{};
  bool compress = false;
};

// Not thread-safe.
class SegmentWriter {
 public:
  explicit SegmentWriter(SegmentOptions options) : options_(std::move(options)) {}

  // Appends the frames of a commit whose first entry has number `first`. OK: they are held, as the
  // policy says. Otherwise none of them is, and the same commit is to be tried again, with the same
  // numbers: after a failed sync in a segment of its own, since the kernel may have dropped what it
  // could not write and will report that only once. `streams` as of the entry before.
  absl::Status Commit(std::span<const FrameToAppend> frames, uint64_t first, int64_t unix_ns,
                      const StreamPositions& streams);

  // Syncs when the policy's interval has passed. A failure starts a new segment; what was written
  // since the last sync is then only as safe as the kernel keeps it.
  absl::Status SyncIfDue(std::chrono::steady_clock::time_point now);
  // When SyncIfDue wants to be called; max() when there is nothing to sync.
  std::chrono::steady_clock::time_point sync_due() const;
  absl::Status SyncNow();

 private:
  absl::Status Start(uint64_t first, int64_t unix_ns, const StreamPositions& streams);
  void Abandon(uint64_t keep_bytes);

  const SegmentOptions options_;
  std::unique_ptr<FramedLogWriter> log_;
  std::string path_;
  uint64_t first_ = 0;          // of the open segment
  int64_t begun_unix_ns_ = 0;   // it was
  bool holds_entries_ = false;  // the open segment
  bool unsynced_ = false;
  std::chrono::steady_clock::time_point unsynced_since_{};
};

}  // namespace plumbline::server
