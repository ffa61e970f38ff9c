// The stream to the server: one thread that connects, sends the batches of the outbox, receives
// acknowledgements, and reconnects when the stream breaks. Before its own batches it delivers those
// that earlier processes of this rank left in the spool.
//
// gRPC is started only after Start, and only from this thread. The thread blocks the trainer's
// signals, so gRPC's threads block them too.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "agent/core/shared/threads.h"
#include "transport/connection.h"
#include "transport/outbox.h"

namespace plumbline::agent {

// Returns a function that prints once, on standard error, why the server refuses this process:
// without this message, evidence would accumulate and the user would not know.
std::function<void(const grpc::Status&)> DescribeOnce(const std::string& server);
// Returns a function that prints once that the server refuses batches, and why: the run continues,
// and its evidence is lost.
std::function<void(const std::string&)> DescribeRejected(const std::string& server);

// Returns a function that prints once, on standard error, that no server was reached, and why. It
// prints at the first try, because a user with a wrong port is still watching. A missing server is
// no error.
std::function<void(const grpc::Status&)> DescribeUnreachable(const std::string& server,
                                                             const std::string& caller = "");

class ServerStream : public std::enable_shared_from_this<ServerStream> {
 public:
  using Clock = DetachedThread::Clock;

  // If `spool_dir` is "", no spools of dead processes are delivered.
  ServerStream(transport::StreamConfig config, std::shared_ptr<transport::Outbox> outbox,
               std::string spool_dir = "");

  bool Start();

  // Called when nothing more will be pushed. Once the server has acknowledged everything, closes
  // the stream and ends the thread. At the deadline cancels the stream. Returns true if everything
  // was acknowledged. Returns within a fraction of a second after the deadline, even if gRPC is
  // blocked.
  bool Finish(Clock::time_point deadline);

  uint64_t CpuNs() const { return thread_.CpuNs(); }

  const transport::StreamCounters& counters() const { return counters_; }

 private:
  void Loop();
  void DeliverDeadSpools();
  bool stopping() const { return stop_.load(std::memory_order_acquire); }
  bool finishing() const { return finish_.load(std::memory_order_acquire); }

  const transport::StreamConfig config_;
  const std::shared_ptr<transport::Outbox> outbox_;
  const std::string spool_dir_;
  DetachedThread thread_;
  std::atomic<bool> finish_{false};
  std::atomic<bool> stop_{false};
  transport::StreamCounters counters_;
};

}  // namespace plumbline::agent
