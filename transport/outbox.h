// What the server has not acknowledged yet: a bounded queue in memory, in order, and behind it, if
// there is one, a spool on disk (transport/spool.h).
//
// Without a spool, numbers are given when a batch is first sent, not when it is made: what was
// dropped before it was sent leaves no gap, and batches emptied while the server is away merge into
// one. Beyond its limits the queue drops what is worth least, oldest first: raw rows, which leaves
// their summaries; then the evidence of whole batches. What it dropped it counts in the batch
// itself (batch_edit.h).
//
// With a spool every batch is numbered and written there before it is sent; memory holds the
// oldest, and what it has no room for is read back in its turn. Only what the spool refuses (its
// bound, a full disk) lives in memory alone and may be dropped as above, and once the spool takes
// again it goes there.
//
// The drain thread pushes, the stream thread sends; neither is the trainer's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "transport/batch_edit.h"
#include "transport/spool.h"

namespace plumbline::transport {

struct OutboxLimits {
  uint64_t bytes = 64ull << 20;
  uint64_t batches = 4096;
};

// Thread-safe.
class Outbox {
 public:
  // `spool` null: memory alone. An adopted one: what lies there is sent under its own numbers.
  explicit Outbox(OutboxLimits limits, std::unique_ptr<Spool> spool = nullptr);

  void Push(SealedBatch batch);

  struct Numbered {
    uint64_t sequence = 0;
    std::shared_ptr<const std::string> body;
    uint64_t unsent = 0;  // batches that wait behind it
  };
  // The next batch to be sent on the present stream, numbered; nothing when all are sent.
  std::optional<Numbered> TakeNext();

  // A new stream began and the server says it holds everything up to `acknowledged`: forgets that,
  // and sends what is left again. True when the server has forgotten what it acknowledged before:
  // the caller declares its sites again.
  bool Restart(uint64_t acknowledged);

  // Everything up to `sequence` is the server's.
  void Acknowledge(uint64_t sequence);

  // The server refused this batch for good. Its losses and declarations, and its evidence as losses
  // of cause "rejected", go into the next batch. If that is refused too, the sums of its losses go
  // into one more without names, and then it is given up, so that a refusal cannot go round for
  // ever. Call before Acknowledge of that sequence.
  void Reject(uint64_t sequence);

  // Push count so far, and how many of those the server holds or nobody will ever send.
  uint64_t pushed() const;
  uint64_t settled() const;

  struct State {
    uint64_t bytes = 0;          // in memory
    uint64_t batches = 0;        // not acknowledged, on disk alone or not
    uint64_t unsent = 0;         // of these, not sent on the present stream
    uint64_t items = 0;          // evidence in those in memory
    uint64_t spooled = 0;        // batches on disk, whether or not also in memory
    uint64_t acknowledged = 0;   // highest sequence
    uint64_t next_sequence = 0;  // the oldest sequence still held
    uint64_t rejected = 0;       // batches refused
    uint64_t dropped = 0;        // evidence that found no room, in memory or in the spool
    bool empty() const { return batches == 0; }
  };
  State state() const;

  // The lowest step of what was not sent on the present stream; kNoStep: all is sent.
  int64_t OldestUnsentStep();

  // Every series set that was pushed: a new stream says them in its hello.
  SeriesSets series_sets() const;

  const std::string& spool_path() const { return spool_path_; }  // "": none

 private:
  struct Entry {
    uint64_t sequence = 0;  // 0: not numbered yet
    SealedBatch batch;
    uint64_t pushes = 1;   // batches that it was pushed as
    bool carried = false;  // it is the report of a refusal
  };

  void KeepSets(const v1::Batch& batch) PLUMB_REQUIRES(mutex_);
  void Replace(size_t index, SealedBatch batch) PLUMB_REQUIRES(mutex_);
  void Erase(size_t index) PLUMB_REQUIRES(mutex_);
  void ForgetThrough(uint64_t sequence) PLUMB_REQUIRES(mutex_);
  void Shrink() PLUMB_REQUIRES(mutex_);
  bool DropOldestSamples() PLUMB_REQUIRES(mutex_);
  bool DropOldestEvidence() PLUMB_REQUIRES(mutex_);
  void MergeUnnumbered() PLUMB_REQUIRES(mutex_);
  bool OverLimits() const PLUMB_REQUIRES(mutex_) {
    return bytes_ > limits_.bytes || queue_.size() > limits_.batches;
  }
  std::string Cause() const PLUMB_REQUIRES(mutex_);

  // With a spool; outbox_spool.cc.
  void AdoptSpool() PLUMB_REQUIRES(mutex_);
  void Spill() PLUMB_REQUIRES(mutex_);
  bool SpillNext() PLUMB_REQUIRES(mutex_);
  void LoadNext() PLUMB_REQUIRES(mutex_);
  void LoadLost(const Spool::Read& lost) PLUMB_REQUIRES(mutex_);
  void EvictLast() PLUMB_REQUIRES(mutex_);
  void SkipOnDisk(uint64_t acknowledged) PLUMB_REQUIRES(mutex_);
  uint64_t OnDiskAlone() const PLUMB_REQUIRES(mutex_);
  void InsertLoaded(Entry entry) PLUMB_REQUIRES(mutex_);
  uint64_t PushesOf(uint64_t sequence) PLUMB_REQUIRES(mutex_);

  const OutboxLimits limits_;
  mutable Mutex mutex_;
  // The first spooled_ of these are on disk too; then come those on disk alone, which are not
  // here; then those that the spool has refused so far. All in order.
  std::deque<Entry> queue_ PLUMB_GUARDED_BY(mutex_);
  size_t sent_ PLUMB_GUARDED_BY(mutex_) = 0;  // the first entries, sent on the present stream
  uint64_t bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t sent_bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t last_sequence_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t sent_through_ PLUMB_GUARDED_BY(mutex_) = 0;  // highest sequence that was ever sent
  uint64_t acknowledged_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t rejected_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t dropped_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t pushed_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t settled_ PLUMB_GUARDED_BY(mutex_) = 0;
  SeriesSets sets_ PLUMB_GUARDED_BY(mutex_);

  const std::unique_ptr<Spool> spool_;
  const std::string spool_path_;
  bool adopted_ PLUMB_GUARDED_BY(mutex_) = false;
  size_t spooled_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t loaded_through_ PLUMB_GUARDED_BY(mutex_) =
      0;  // of the spool: in memory, or acknowledged
  std::map<uint64_t, uint64_t> merged_
      PLUMB_GUARDED_BY(mutex_);  // pushes of those on disk alone, where not 1
};

}  // namespace plumbline::transport
