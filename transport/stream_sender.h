// Runs connections one after another in the calling thread until an outbox is empty or nobody waits
// for it any more; and delivers the spools of dead processes.
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

// What the owner of a sender wants; asked often, from the sender's thread.
struct StopConditions {
  std::function<bool()> finishing;  // nothing more is pushed: end when all is acknowledged
  std::function<bool()> stopping;   // end now
};

// Blocks its thread. Not thread-safe.
class StreamSender {
 public:
  using Clock = Connection::Clock;

  StreamSender(const StreamConfig& config, Outbox* outbox, StreamCounters* counters,
               StopConditions stop_conditions);

  // Dials until the conditions say that it is enough: a break is followed by another attempt.
  void Run();

  // The same, but ends when the server answers and will not have this stream. OK: the outbox is
  // empty. Cancelled: stopped before. Others: what the server said.
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
  uint64_t backoff_ms_;  // of a server that is there and will not have us
  std::minstd_rand random_;
};

struct DeadSpools {
  std::string dir;               // where spools lie
  std::optional<v1::Source> of;  // of this run, role and rank alone; none: all
  std::string run;               // of this run alone; "": all
  StreamConfig config;           // target, version and times; sources and id are a spool's
  std::function<bool()> stopping;
  // After each, delivered or not; may be null. `batches`: how many were in it.
  std::function<void(const Spool&, const absl::Status&, uint64_t batches)> report;
};
// Delivers the spools in `dir` whose processes are dead, each as its own stream under its own
// numbers, and deletes them. Returns how many are left: refused, or not in time.
uint64_t DeliverDeadSpools(const DeadSpools& dead_spools);

}  // namespace plumbline::transport
