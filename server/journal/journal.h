// The journal: one writing thread numbers entries, commits many at once, and then calls back in
// order. When its callback is called, an entry is held: it will be judged, even if the process dies
// (and, depending on the sync policy, even if the host crashes). Only held entries may be
// acknowledged.
//
// Without a directory nothing is stored; numbers and order are the same.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/task_timer.h"
#include "server/journal/entry.h"
#include "server/journal/segment_writer.h"
#include "server/journal/stream_positions.h"
#include "server/process/counters.h"

namespace plumbline::server {

struct JournalOptions {
  SegmentOptions segments;  // if the directory is empty, nothing is stored
  std::chrono::nanoseconds commit_delay = std::chrono::milliseconds(5);
  size_t commit_bytes = 4u << 20;
  std::function<int64_t()> unix_ns;  // time of receipt
  // Called on the writing thread: true if the disk refuses writes, false once it accepts them
  // again.
  std::function<void(bool)> on_stall;
};

// Thread-safe, except construction and destruction.
class Journal {
 public:
  using Done = std::function<void(const EntryPrefix&)>;

  // Continues after number `last`. `counters` must outlive it.
  Journal(JournalOptions options, uint64_t last, StreamPositions streams, Counters* counters);
  ~Journal();

  // Appends an entry. `done` runs on the writing thread once the entry is held, in order of the
  // numbers; it must be quick. If the journal stops before the entry is held, `dropped` runs
  // instead, on any thread.
  void Append(JournalEntry entry, Done done, std::function<void()> dropped = nullptr);
  // Runs `what` at its place between the entries, without an entry. It never runs after Stop.
  void Then(std::function<void()> what);
  // Appends an entry and waits until it is held, without waiting to group it. Returns Unavailable
  // if the journal stops before. Must not be called from `done` or `what`.
  absl::StatusOr<EntryPrefix> AppendAndWait(JournalEntry entry);

  // Commits the appended entries, for a short limited time, and ends the thread.
  void Stop();

  // Returns the number up to which all entries are held.
  uint64_t committed() const { return committed_; }
  bool durable() const { return writer_ != nullptr; }

  // Returns Unavailable, with the reason, if the disk refuses writes or the journal was stopped.
  absl::Status state() const;
  // Returns how long the writing thread has been busy with its current write.
  std::chrono::nanoseconds writing_for() const { return writing_.For(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Item {
    bool is_entry = false;
    JournalEntry entry;
    EntryPrefix prefix;
    Done done;
    std::function<void()> dropped;  // called if the journal ends without it
    Clock::time_point arrived;
  };

  void Push(Item item, bool urgent);
  void Loop();
  bool Gather(std::vector<Item>* batch);
  bool Commit(std::vector<Item>& batch);
  absl::Status Write(const std::vector<Item>& batch, size_t entries);
  void SetState(absl::Status state);
  bool WaitToRetry(std::chrono::nanoseconds delay);
  void SyncIdle();

  const JournalOptions options_;
  Counters* const counters_;
  std::unique_ptr<SegmentWriter> writer_;  // the writing thread owns this and the next two
  StreamPositions streams_;
  uint64_t last_;

  std::atomic<uint64_t> committed_;
  TaskTimer writing_;
  mutable Mutex mutex_;
  absl::Status state_ PLUMB_GUARDED_BY(mutex_);
  CondVar changed_;
  std::deque<Item> queue_ PLUMB_GUARDED_BY(mutex_);
  size_t queued_bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  size_t queued_entries_ PLUMB_GUARDED_BY(mutex_) = 0;
  bool urgent_ PLUMB_GUARDED_BY(mutex_) = false;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  Clock::time_point stop_by_ PLUMB_GUARDED_BY(mutex_){};
  std::thread thread_;
};

}  // namespace plumbline::server
