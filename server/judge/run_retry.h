// Judges a run again while others continue. A thread reads it from the journal. The judging thread
// takes the read items, a few at a time, and then the items that arrived for the run meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "plumbline/v1/query.pb.h"

namespace plumbline::server {

// Reads the next item of a run in judged order; returns false after the last one.
using RunItems = std::function<absl::StatusOr<bool>(v1::ReadRunItem*)>;
// Opens the items up to the journal's entry `newest`.
using OpenRun = std::function<absl::StatusOr<RunItems>(const std::string& run, uint64_t newest)>;

// Used only by the judging thread.
class RunRetry {
 public:
  // Limits of the bytes that wait for the judging thread: read, and deferred.
  static constexpr size_t kMostRead = 16u << 20;
  static constexpr size_t kMostDeferred = 64u << 20;

  // Batches of entries after `judged` are deferred, not read.
  RunRetry(std::string run, uint64_t judged, uint64_t newest, const OpenRun& open);
  ~RunRetry();

  const std::string& run() const { return run_; }

  enum class Next { kItem, kNotYet, kEnd };
  // Takes the next item. If `wait`, never returns kNotYet. After kEnd, `status` is an error if the
  // items are incomplete.
  Next Take(bool wait, v1::ReadRunItem* item);
  const absl::Status& status() const { return status_; }

  // A batch or an event that arrived live meanwhile.
  struct Deferred {
    uint64_t entry = 0;
    std::shared_ptr<const v1::Batch> batch;  // null: it is the event
    v1::JudgeEvent event;
  };
  void Defer(Deferred item);
  bool full() const { return deferred_bytes_ > kMostDeferred; }
  bool TakeDeferred(Deferred* item);

 private:
  void Read(const OpenRun& open, uint64_t newest);

  const std::string run_;
  const uint64_t judged_;
  std::deque<Deferred> deferred_;
  size_t deferred_bytes_ = 0;

  Mutex mutex_;
  CondVar changed_;
  std::deque<v1::ReadRunItem> read_ PLUMB_GUARDED_BY(mutex_);
  size_t read_bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  bool ended_ PLUMB_GUARDED_BY(mutex_) = false;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  absl::Status status_ PLUMB_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace plumbline::server
