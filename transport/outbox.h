// Batches that the server has not acknowledged yet: a bounded queue in memory, in order, and
// optionally a spool on disk (transport/spool.h).
//
// Without a spool, a batch gets its number when it is first sent, not when it is made. So batches
// that were dropped unsent leave no gap, and batches that were emptied while the server is away
// merge into one. Beyond its limits the queue drops the least valuable data first, oldest first:
// raw rows, whose summaries stay; then the evidence of whole batches. The batch counts the items
// that were dropped from it (batch_edit.h).
//
// With a spool, every batch is numbered and written there before it is sent. Memory holds the
// oldest batches; the others are read back when they are due. Only batches that the spool refuses
// (its limit, a full disk) are in memory alone, where they may be dropped as above. Once the spool
// accepts batches again, they are written there.
//
// The drain thread pushes, the stream thread sends; neither is the trainer's thread.
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
  // If `spool` is null, uses only memory. The batches of an adopted spool are sent under their own
  // numbers.
  explicit Outbox(OutboxLimits limits, std::unique_ptr<Spool> spool = nullptr);

  void Push(SealedBatch batch);

  struct Numbered {
    uint64_t sequence = 0;
    std::shared_ptr<const std::string> body;
    uint64_t unsent = 0;  // batches that wait to be sent after it
  };
  // Returns the next batch to send on the present stream, numbered. If all batches are sent, or if
  // a limit of batches in flight is reached, returns nullopt.
  std::optional<Numbered> TakeNext();

  // Begins a new stream. The server reports that it holds everything up to `acknowledged`: forgets
  // these batches, and sends the others again. Returns true if the server has lost batches that it
  // acknowledged before; then the caller must declare its sites again.
  bool Restart(uint64_t acknowledged);

  // Removes everything up to `sequence`, which the server holds.
  void Acknowledge(uint64_t sequence);

  // Handles a batch that the server refused for good. Its losses and declarations, and its evidence
  // as losses of cause "rejected", go into the next batch. If that is refused too, the sums of its
  // losses go into one more without names. If that is refused as well, it is given up, so that
  // refusals cannot repeat forever. Call before Acknowledge of that sequence.
  void Reject(uint64_t sequence);

  // Returns the number of pushes so far, and how many of those the server holds or will never get.
  uint64_t pushed() const;
  uint64_t settled() const;

  struct State {
    uint64_t bytes = 0;          // in memory
    uint64_t batches = 0;        // not acknowledged, in memory or on disk
    uint64_t unsent = 0;         // of these, not sent on the present stream
    uint64_t items = 0;          // evidence in those in memory
    uint64_t spooled = 0;        // batches on disk, whether or not also in memory
    uint64_t acknowledged = 0;   // highest sequence
    uint64_t next_sequence = 0;  // the oldest sequence still held
    uint64_t rejected = 0;       // batches that were refused
    uint64_t dropped = 0;        // evidence that did not fit into memory or the spool
    bool empty() const { return batches == 0; }
  };
  State state() const;

  // Returns the lowest step that was not sent on the present stream; kNoStep if all is sent.
  int64_t OldestUnsentStep();

  // Returns every series set that was pushed; a new stream declares them in its hello.
  SeriesSets series_sets() const;

  const std::string& spool_path() const { return spool_path_; }  // "": none

 private:
  struct Entry {
    uint64_t sequence = 0;  // 0: not numbered yet
    SealedBatch batch;
    uint64_t pushes = 1;   // the number of pushed batches merged into it
    bool carried = false;  // true if it is the report of a refusal
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

  // With a spool (outbox_spool.cc).
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
  // In order: the first spooled_ entries are also on disk. Batches that are only on disk follow
  // them, and are not in this queue. Then come those that the spool has refused so far.
  std::deque<Entry> queue_ PLUMB_GUARDED_BY(mutex_);
  // entries from the front that were sent on the present stream
  size_t sent_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t sent_bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t last_sequence_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t sent_through_ PLUMB_GUARDED_BY(mutex_) = 0;  // highest sequence ever sent
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
      0;  // up to here the spool's batches are in memory or acknowledged
  std::map<uint64_t, uint64_t> merged_
      PLUMB_GUARDED_BY(mutex_);  // pushes of batches that are only on disk, if not 1
};

}  // namespace plumbline::transport
