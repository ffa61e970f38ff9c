// The bounded queue between the streams and the judging threads. Nothing is ever dropped from it:
// when it is full, streams are not read until there is room again, so TCP holds the senders.
// Batches count from the moment they are read, on their way through the journal too, until they are
// begun. Of one run at most three times as much may wait as there is room left: whoever fills the
// queue is stopped, and there is always room for others.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "plumbline/v1/evidence.pb.h"
#include "plumbline/v1/journal_event.pb.h"
#include "server/stream/parsed_batch.h"

namespace plumbline::server {

// What the judging threads are told, in the order in which it happened to each stream.
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
  std::string charged_run;  // of a batch: the run that was told to Admit
  uint64_t place = 0;       // the queue's own
  uint64_t entry = 0;       // of the journal, of a batch
  int64_t unix_ns = 0;      // when the batch was received
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
  std::string run;  // of kTask: of which it speaks
};

// Thread-safe.
class JudgeQueue {
 public:
  using Clock = std::chrono::steady_clock;

  explicit JudgeQueue(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Announces a batch of so many bytes of a run. It counts always; false: the queue is held, or
  // full of that run, and the caller stops reading until `resume` runs (on a judging or the holding
  // thread, so it must be quick). Without `resume` it is never false.
  bool Admit(const std::string& run, size_t bytes, std::function<void()> resume);
  // Batches were announced by Admit, with the same run and bytes.
  void Push(JudgeItem item);
  // While held, nothing is admitted without pausing.
  void Hold(bool held);

  enum class Popped { kItem, kTimeout, kClosed };
  // By one thread at a time. What it popped counts until it says that it is begun.
  Popped Pop(Clock::time_point deadline, JudgeItem* item);
  void Began(const JudgeItem& item);
  // Pop returns now, or, while nobody is in it, the next time at once.
  void Wake();

  // Pop goes on until the queue is empty, then says kClosed. Pushes after it are refused silently:
  // they were not acknowledged.
  void Close();

  size_t size() const;   // pushed and not begun
  size_t bytes() const;  // announced and not begun
  bool held() const;
  // When the first of these batches was received; 0: there is none.
  int64_t oldest_unix_ns() const;

 private:
  using Resumptions = std::vector<std::function<void()>>;
  // How much of it waits, and whose streams stopped.
  struct Run {
    size_t bytes = 0;
    Resumptions paused;
  };
  bool HasRoom(const Run& run, size_t times) const PLUMB_REQUIRES(mutex_);
  void FreeLocked(Run& run, Resumptions* resumed) PLUMB_REQUIRES(mutex_);
  void FreeAllLocked(Resumptions* resumed) PLUMB_REQUIRES(mutex_);

  const size_t max_bytes_;
  mutable Mutex mutex_;  // guards all that follows
  CondVar changed_;
  std::deque<JudgeItem> items_ PLUMB_GUARDED_BY(mutex_);
  size_t popped_ PLUMB_GUARDED_BY(mutex_) = 0;  // and not begun
  size_t bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  // bytes_ when all were asked whether there is room for them.
  size_t looked_at_ PLUMB_GUARDED_BY(mutex_) = 0;
  bool closed_ PLUMB_GUARDED_BY(mutex_) = false;
  bool held_ PLUMB_GUARDED_BY(mutex_) = false;
  bool woken_ PLUMB_GUARDED_BY(mutex_) = false;
  // Senders choose the names.
  std::unordered_map<std::string, Run, absl::Hash<std::string>> runs_ PLUMB_GUARDED_BY(mutex_);
  uint64_t last_place_ PLUMB_GUARDED_BY(mutex_) = 0;
  // Batches that are not begun, by place.
  std::map<uint64_t, int64_t> received_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
