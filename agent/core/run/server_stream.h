// The stream to the server: one thread that dials, sends what the outbox holds, takes
// acknowledgements, and dials again when the stream breaks. Before its own it delivers what earlier
// processes of this rank left in the spool.
//
// Nothing of gRPC is started before Start, and only from this thread, which blocks the trainer's
// signals, so that gRPC's threads do too.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "agent/core/shared/threads.h"
#include "transport/connection.h"
#include "transport/outbox.h"

namespace plumbline::agent {

// Says once on standard error what a server has against this process: without it, evidence would
// only pile up.
std::function<void(const grpc::Status&)> SayOnce(const std::string& server);
// Prints, once, that the server refuses batches, and why: the run goes on, and its evidence is
// lost.
std::function<void(const std::string&)> SayRejected(const std::string& server);

// Says once on standard error that nobody was reached, and why: at the first try, since a wrong
// port or a typing error is mended best while its author looks. A missing server stays no error.
std::function<void(const grpc::Status&)> SayUnreachable(const std::string& server,
                                                        const std::string& caller = "");

class ServerStream : public std::enable_shared_from_this<ServerStream> {
 public:
  using Clock = DetachedThread::Clock;

  // `spool_dir` "": no dead spools are looked for.
  ServerStream(transport::StreamConfig config, std::shared_ptr<transport::Outbox> outbox,
               std::string spool_dir = "");

  bool Start();

  // Nothing more will be pushed: once the server has acknowledged all, the stream is closed and the
  // thread ends. At the deadline the stream is cancelled instead. True when all was acknowledged.
  // Returns within a fraction of a second after the deadline, whatever gRPC does.
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
