// What the server has not acknowledged yet: a bounded queue in memory, in order.
//
// Numbers are given when a batch is first sent, not when it is made: what was dropped before it was
// sent leaves no gap, and batches emptied while the server is away merge into one. Beyond its
// limits the queue drops what is worth least, oldest first: raw rows, which leaves their summaries;
// then the evidence of whole batches. What it dropped it counts in the batch itself (batch_edit.h).
//
// The drain thread pushes, the stream thread sends; neither is the trainer's.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "agent/core/batch_edit.h"

namespace plumbline::agent {

struct OutboxLimits {
  uint64_t bytes = 64ull << 20;
  uint64_t batches = 4096;
};

class Outbox {
 public:
  // `names` may be null: series that are dropped are then counted without their names.
  explicit Outbox(OutboxLimits limits, std::shared_ptr<const SeriesRegistry> names = nullptr)
      : limits_(limits), names_(std::move(names)) {}

  void Push(SealedBatch batch);

  struct Numbered {
    uint64_t sequence = 0;
    std::shared_ptr<const std::string> body;
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
  // of cause "rejected", go into the next batch. When that is refused too it is given up, so that a
  // refusal cannot go round for ever. Call before Acknowledge of that sequence.
  void Reject(uint64_t sequence);

  // Push count so far, and how many of those the server holds or nobody will ever send.
  uint64_t pushed() const;
  uint64_t settled() const;

  struct State {
    uint64_t bytes = 0;
    uint64_t batches = 0;        // not acknowledged
    uint64_t unsent = 0;         // of these, not sent on the present stream
    uint64_t items = 0;          // evidence in them
    uint64_t acknowledged = 0;   // highest sequence
    uint64_t next_sequence = 0;  // the oldest sequence still held
    uint64_t rejected = 0;       // batches refused
    bool empty() const { return batches == 0; }
  };
  State state() const;

 private:
  struct Entry {
    uint64_t sequence = 0;  // 0: not numbered yet
    SealedBatch batch;
    uint64_t pushes = 1;   // batches that it was pushed as
    bool carried = false;  // it is the report of a refusal
  };

  void Replace(size_t index, SealedBatch batch);
  void Shrink();
  bool DropOldestSamples();
  bool DropOldestEvidence();
  void MergeUnnumbered();
  bool OverLimits() const { return bytes_ > limits_.bytes || queue_.size() > limits_.batches; }

  const OutboxLimits limits_;
  const std::shared_ptr<const SeriesRegistry> names_;
  mutable std::mutex mutex_;
  std::deque<Entry> queue_;
  size_t sent_ = 0;  // the first entries, sent on the present stream
  uint64_t bytes_ = 0;
  uint64_t last_sequence_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t rejected_ = 0;
  uint64_t pushed_ = 0;
  uint64_t settled_ = 0;
};

}  // namespace plumbline::agent
