// The bounded queue between the streams and the one judging thread. Nothing is ever dropped from
// it: when it is full, streams are not read until there is room again, so TCP holds the senders.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "plumbline/v1/evidence.pb.h"
#include "server/ingest/parsed_batch.h"

namespace plumbline::server {

// What the judging thread is told, in the order in which it happened to each stream.
struct JudgeItem {
  enum class Kind {
    kBatch,
    kConnected,     // `sources` are there (again)
    kDisconnected,  // the stream of `sources` broke or ended
  };
  Kind kind = Kind::kBatch;
  uint64_t stream_id = 0;
  ParsedBatch batch;
  std::vector<v1::Source> sources;
};

// Thread-safe.
class JudgeQueue {
 public:
  using Clock = std::chrono::steady_clock;

  explicit JudgeQueue(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Takes the item always. False: the queue is full; the caller stops reading until `resume` runs
  // (on the judging thread, so it must be quick).
  bool Push(JudgeItem item, std::function<void()> resume);

  enum class Popped { kItem, kTimeout, kClosed };
  Popped Pop(Clock::time_point deadline, JudgeItem* item);

  // Pop goes on until the queue is empty, then says kClosed. Pushes after it are refused silently:
  // they were not acknowledged.
  void Close();

  size_t size() const;

 private:
  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<JudgeItem> items_;
  size_t bytes_ = 0;
  bool closed_ = false;
  std::vector<std::function<void()>> paused_;
};

}  // namespace plumbline::server
