// The bounded queue between the streams and the one judging thread. Nothing is ever dropped from
// it: when it is full, streams are not read until there is room again, so TCP holds the senders.
// Batches count from the moment they are read, on their way through the journal too.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "plumbline/v1/evidence.pb.h"
#include "plumbline/v1/journal_event.pb.h"
#include "server/stream/parsed_batch.h"

namespace plumbline::server {

// What the judging thread is told, in the order in which it happened to each stream.
struct JudgeItem {
  enum class Kind {
    kBatch,
    kConnected,     // `sources` are there (again)
    kDisconnected,  // the stream of `sources` broke or ended
    kBeat,          // `sources` go on and have nothing else to say
    kDecision,      // somebody outside decided `event`
    kTask,          // `task` is to be done there
  };
  Kind kind = Kind::kBatch;
  uint64_t stream_id = 0;
  ParsedBatch batch;
  uint64_t entry = 0;   // of the journal, of a batch
  int64_t unix_ns = 0;  // when the batch was received
  std::shared_ptr<const std::vector<v1::Source>> sources;
  bool backlog = false;        // of kConnected: evidence waits to be sent
  bool process_ended = false;  // of kDisconnected: as far as its connection tells
  // Of kBeat: likewise, as it was said last. A stream has one beat on its way at most.
  struct Beat {
    std::atomic<bool> backlog{false};
    std::atomic<bool> on_its_way{false};
  };
  std::shared_ptr<Beat> beat;
  v1::JudgeEvent event;
  std::function<void(absl::Status)> decided;  // after `event` was applied, or could not be kept
  std::function<void()> task;
};

// Thread-safe.
class JudgeQueue {
 public:
  using Clock = std::chrono::steady_clock;

  explicit JudgeQueue(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Announces a batch of so many bytes. It counts always; false: the queue is full or held, and the
  // caller stops reading until `resume` runs (on the judging or the holding thread, so it must be
  // quick). Without `resume` it is never false.
  bool Admit(size_t bytes, std::function<void()> resume);
  // Batches were announced by Admit, with the same bytes.
  void Push(JudgeItem item);
  // While held, nothing is admitted without pausing.
  void Hold(bool held);

  enum class Popped { kItem, kTimeout, kClosed };
  Popped Pop(Clock::time_point deadline, JudgeItem* item);

  // Pop goes on until the queue is empty, then says kClosed. Pushes after it are refused silently:
  // they were not acknowledged.
  void Close();

  size_t size() const;
  size_t bytes() const;  // announced and not popped
  bool held() const;
  // When the first batch in it was received; 0: there is none.
  int64_t oldest_unix_ns() const;

 private:
  const size_t max_bytes_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<JudgeItem> items_ PLUMB_GUARDED_BY(mutex_);
  size_t bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  bool closed_ PLUMB_GUARDED_BY(mutex_) = false;
  bool held_ PLUMB_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> paused_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
