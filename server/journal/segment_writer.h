// Appends commits to the journal's newest segment and decides when a commit counts as held.
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

// When written entries count as held.
enum class SyncPolicy {
  kCommit,    // after fdatasync: survives a crash of the host
  kInterval,  // at once, synced in intervals: survives the process; a crash of the host loses the
              // last interval
  kNever,     // at once; the kernel writes at any time: survives the process
};

struct SegmentOptions {
  std::string directory;  // must exist
  std::string tool_version;
  SyncPolicy sync = SyncPolicy::kCommit;
  std::chrono::nanoseconds sync_interval = std::chrono::seconds(1);
  uint64_t segment_bytes = 256u << 20;
  // A segment that is older takes no more entries, so that old entries are in separate files. 0: no
  // limit.
  std::chrono::nanoseconds segment_age{};
  bool compress = false;
};

// Not thread-safe.
class SegmentWriter {
 public:
  explicit SegmentWriter(SegmentOptions options) : options_(std::move(options)) {}

  // Appends the frames of a commit whose first entry has number `first`. If OK, they are held
  // according to the policy. Otherwise none is, and the caller must try the same commit again with
  // the same numbers. After a failed sync the next try begins a new segment, because the kernel may
  // have dropped data that it could not write, and reports this only once. `streams` is the state
  // at the entry before.
  absl::Status Commit(std::span<const FrameToAppend> frames, uint64_t first, int64_t unix_ns,
                      const StreamPositions& streams);

  // Syncs if the policy's interval has passed. A failure starts a new segment. Then the kernel
  // alone decides whether data since the last sync survive.
  absl::Status SyncIfDue(std::chrono::steady_clock::time_point now);
  // Returns when SyncIfDue must be called; max() if there is nothing to sync.
  std::chrono::steady_clock::time_point sync_due() const;
  absl::Status SyncNow();

 private:
  absl::Status Start(uint64_t first, int64_t unix_ns, const StreamPositions& streams);
  void Abandon(uint64_t keep_bytes);

  const SegmentOptions options_;
  std::unique_ptr<FramedLogWriter> log_;
  std::string path_;
  uint64_t first_ = 0;          // of the open segment
  int64_t begun_unix_ns_ = 0;   // when it was begun
  bool holds_entries_ = false;  // true if the open segment has entries
  bool unsynced_ = false;
  std::chrono::steady_clock::time_point unsynced_since_{};
};

}  // namespace plumbline::server
