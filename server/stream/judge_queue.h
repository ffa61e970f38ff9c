// The bounded queue between the streams and the judging threads. It never drops anything: when it
// is full, streams are not read until there is space again, so that TCP slows the senders down.
// Batches count from the moment they are read, also on their way through the journal, until they
// are begun. One run may use at most three times the remaining space, so that a sender that fills
// the queue is paused and others always have space.
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

// An item for the judging threads. Items of one stream are in the order in which they happened.
struct JudgeItem {
  enum class Kind {
    kBatch,
    kConnected,     // the ranks of `sources` are connected (again)
    kDisconnected,  // the stream of `sources` broke or ended
    kBeat,          // `sources` are alive and have nothing else to send
    kDecision,      // `event` was decided outside
    kTask,          // `task` must run on a judging thread
  };
  Kind kind = Kind::kBatch;
  uint64_t stream_id = 0;
  ParsedBatch batch;
  std::string charged_run;  // of a batch: the run that was passed to Admit
  uint64_t place = 0;       // used only by the queue
  uint64_t entry = 0;       // of the journal, of a batch
  int64_t unix_ns = 0;      // when the batch was received
  std::shared_ptr<const std::vector<v1::Source>> sources;
  bool backlog = false;        // of kConnected: evidence waits to be sent
  bool process_ended = false;  // of kDisconnected: as far as its connection shows
  // Of kBeat: the backlog that was reported last. A stream has at most one heartbeat in the queue.
  struct Beat {
    std::atomic<bool> backlog{false};
    std::atomic<bool> on_its_way{false};
  };
  std::shared_ptr<Beat> beat;
  v1::JudgeEvent event;
  // called after `event` was applied, or could not be written
  std::function<void(absl::Status)> decided;
  std::function<void()> task;
  std::string run;  // of kTask: the run that it belongs to
};

// Thread-safe.
class JudgeQueue {
 public:
  using Clock = std::chrono::steady_clock;

  explicit JudgeQueue(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Announces a batch of `bytes` bytes of a run, which counts in any case. Returns false if the
  // queue is held, or full for that run. Then the caller must stop reading until `resume` runs.
  // `resume` runs on a judging thread or the holding thread, so it must be quick. Without `resume`
  // it never returns false.
  bool Admit(const std::string& run, size_t bytes, std::function<void()> resume);
  // Adds an item. A batch must have been announced by Admit, with the same run and bytes.
  void Push(JudgeItem item);
  // While held, Admit returns false to every caller with `resume`.
  void Hold(bool held);

  enum class Popped { kItem, kTimeout, kClosed };
  // Pop takes the next item; one thread at a time. The item counts until Began is called with it.
  Popped Pop(Clock::time_point deadline, JudgeItem* item);
  void Began(const JudgeItem& item);
  // Makes Pop return now, or immediately at the next call if no thread is in it.
  void Wake();

  // Ends the queue: Pop returns items until it is empty, then kClosed. Later pushes are dropped
  // silently, since they were not acknowledged.
  void Close();

  size_t size() const;   // pushed and not begun
  size_t bytes() const;  // announced and not begun
  bool held() const;
  // Returns when the first of these batches was received; 0 if there is none.
  int64_t oldest_unix_ns() const;

 private:
  using Resumptions = std::vector<std::function<void()>>;
  // The waiting bytes of a run, and its paused streams.
  struct Run {
    size_t bytes = 0;
    Resumptions paused;
  };
  bool HasRoom(const Run& run, size_t times) const PLUMB_REQUIRES(mutex_);
  void FreeLocked(Run& run, Resumptions* resumed) PLUMB_REQUIRES(mutex_);
  void FreeAllLocked(Resumptions* resumed) PLUMB_REQUIRES(mutex_);

  const size_t max_bytes_;
  mutable Mutex mutex_;  // guards all following members
  CondVar changed_;
  std::deque<JudgeItem> items_ PLUMB_GUARDED_BY(mutex_);
  size_t popped_ PLUMB_GUARDED_BY(mutex_) = 0;  // and not begun
  size_t bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  // The value of bytes_ when all runs were last checked for space.
  size_t looked_at_ PLUMB_GUARDED_BY(mutex_) = 0;
  bool closed_ PLUMB_GUARDED_BY(mutex_) = false;
  bool held_ PLUMB_GUARDED_BY(mutex_) = false;
  bool woken_ PLUMB_GUARDED_BY(mutex_) = false;
  // Seeded hashes, because senders choose the names.
  std::unordered_map<std::string, Run, absl::Hash<std::string>> runs_ PLUMB_GUARDED_BY(mutex_);
  uint64_t last_place_ PLUMB_GUARDED_BY(mutex_) = 0;
  // Reception times of batches that are not begun, by place.
  std::map<uint64_t, int64_t> received_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
