// Queues hellos that found no place for their runs (run_shares.h). Each free place goes to the
// permitted hello that has waited longest, so that a sender that retries without a pause does not
// take all of them. A new run waits for at most one place for each connection that waited before
// it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/ingest/name_counts.h"
#include "server/ingest/name_table.h"
#include "server/process/counters.h"
#include "server/stream/sender.h"

namespace plumbline::server {

// Thread-safe. The destructor drops the hellos that wait.
class AdmissionQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Place = absl::StatusOr<std::shared_ptr<NameTable::Hold>>;

  static constexpr size_t kMost = 4096;           // hellos that wait
  static constexpr size_t kMostBytes = 16 << 20;  // bytes of the hellos that wait
  static constexpr size_t kOfConnection = 64;     // hellos of a relay's connection that wait, one
                                                  // per process

  // `names` and `counters` must outlive it. If no place becomes free for `still`, the hellos that
  // have waited so long are refused.
  AdmissionQueue(NameTable* names, Counters* counters, std::chrono::nanoseconds still);
  ~AdmissionQueue();

  struct Request {
    std::set<std::string> runs;
    Sender sender;
    size_t bytes = 0;                // held by `done` while it waits
    std::weak_ptr<const void> call;  // if it is gone, the request is dropped
    std::function<void(Place)> done;
  };
  // Returns the place, or the reason why there is none. If the request waits, returns nothing. Then
  // the queue's thread calls `done` later, with no lock held.
  std::optional<Place> Query(Request request);

 private:
  struct Waiting {
    Request request;
    std::string key;
    Clock::time_point since;
    absl::Status full;
  };
  using Queue = std::list<Waiting>;
  struct Answer {
    std::function<void(Place)> done;
    Place place;
  };

  void OnFree();
  void Loop();
  bool MayWaitLocked(const Request& request, const std::string& key) PLUMB_REQUIRES(mutex_);
  void AppendLocked(Request request, std::string key, absl::Status full) PLUMB_REQUIRES(mutex_);
  Queue::iterator EraseLocked(Queue::iterator at) PLUMB_REQUIRES(mutex_);
  std::vector<Answer> AdmitLocked() PLUMB_REQUIRES(mutex_);
  std::vector<Answer> RefuseLocked(Clock::time_point now) PLUMB_REQUIRES(mutex_);

  NameTable* const names_;
  Counters* const counters_;
  const std::chrono::nanoseconds still_;
  // Not zero while a request is tried or waits. Changed with the lock.
  std::atomic<size_t> requesting_{0};
  Mutex mutex_;
  CondVar changed_;
  Queue queue_ PLUMB_GUARDED_BY(mutex_);
  size_t bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Queue::iterator> by_key_ PLUMB_GUARDED_BY(mutex_);
  NameCounts of_connections_ PLUMB_GUARDED_BY(mutex_);
  NameCounts of_senders_ PLUMB_GUARDED_BY(mutex_);      // by entries and address
  bool retry_ PLUMB_GUARDED_BY(mutex_) = false;         // since the queue was last tried
  Clock::time_point moved_ PLUMB_GUARDED_BY(mutex_){};  // when a hello last got a place
  Clock::time_point next_ PLUMB_GUARDED_BY(mutex_){};   // the queue is not tried earlier
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last member: starts when all others exist
};

}  // namespace plumbline::server
