// Runs connections one after another in the calling thread until an outbox is empty or the caller's
// conditions end it; and delivers the spools of dead processes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "transport/connection.h"
#include "transport/dialer.h"
#include "transport/outbox.h"

namespace plumbline::transport {

// The caller's conditions to end; called often, from the sender's thread.
struct StopConditions {
  std::function<bool()> finishing;  // nothing more is pushed: end once all is acknowledged
  std::function<bool()> stopping;   // end now
};

// Blocks its thread. Not thread-safe.
class StreamSender {
 public:
  using Clock = Connection::Clock;

  StreamSender(const StreamConfig& config, Outbox* outbox, StreamCounters* counters,
               StopConditions stop_conditions);

  // Connects until the conditions end this. After a broken connection tries again.
  void Run();

  // Does the same, but also ends if the server refuses this stream. Returns OK if the outbox is
  // empty, Cancelled if it was stopped before, otherwise the server's status.
  absl::Status Deliver();

 private:
  bool Wanted() const;
  bool RunOnce(grpc::Status* status);
  bool Call(const std::shared_ptr<grpc::Channel>& channel, grpc::Status* status);
  void Spread();
  void WaitBeforeNext(bool welcomed, const grpc::Status& status);
  void Wait(uint64_t ms);
  void AwaitServer();

  const StreamConfig& config_;
  Outbox& outbox_;
  StreamCounters& counters_;
  const StopConditions stop_conditions_;
  Dialer dialer_;
  uint64_t backoff_ms_;  // if the server is reachable but refuses
  std::minstd_rand random_;
};

struct DeadSpools {
  std::string dir;               // that holds the spools
  std::optional<v1::Source> of;  // only those of this run, role and rank; none: all
  std::string run;               // only those of this run; "": all
  StreamConfig config;           // target, version and times; sources and id come from each spool
  std::function<bool()> stopping;
  // Called after each spool, delivered or not; may be null. `batches`: the number of batches in it.
  std::function<void(const Spool&, const absl::Status&, uint64_t batches)> report;
};
// Delivers the spools in `dir` whose processes are dead, each with its original stream id and
// numbers, and deletes them. Returns how many are left: refused, or not delivered in time.
uint64_t DeliverDeadSpools(const DeadSpools& dead_spools);

}  // namespace plumbline::transport
