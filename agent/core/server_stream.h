// The stream to the server: one thread that dials, sends what the outbox holds, takes
// acknowledgements, and dials again when the stream breaks.
//
// The only part of the agent that knows gRPC. Nothing of it is started before Start, and only from
// its own thread, which blocks the trainer's signals, so that gRPC's threads do too.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "agent/core/options.h"
#include "agent/core/outbox.h"
#include "agent/core/threads.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::agent {

struct StreamConfig {
  std::string target;  // host:port, or unix:PATH
  v1::Source source;
  uint64_t stream_id = 0;
  uint32_t backoff_first_ms = 100;
  uint32_t backoff_last_ms = 5000;
  uint32_t ack_timeout_ms = 30000;
  uint32_t heartbeat_ms = 1000;
  std::function<int64_t()> newest_step;          // for heartbeats
  std::shared_ptr<const SeriesRegistry> series;  // said in each hello; may be null
  std::function<void()> server_forgot;           // it no longer holds what it acknowledged
};

class ServerStream : public std::enable_shared_from_this<ServerStream> {
 public:
  using Clock = GuestThread::Clock;

  ServerStream(StreamConfig config, std::shared_ptr<Outbox> outbox);

  bool Start();

  // Nothing more will be pushed: once the server has acknowledged all, the stream is closed and the
  // thread ends. At the deadline the stream is cancelled instead. True when all was acknowledged.
  // Returns within a fraction of a second after the deadline, whatever gRPC does.
  bool Finish(Clock::time_point deadline);

  uint64_t CpuNs() const { return thread_.CpuNs(); }

  struct Counters {
    std::atomic<uint64_t> connections{0};  // welcomes received
    std::atomic<uint64_t> batches_sent{0};
    std::atomic<uint64_t> bytes_sent{0};
  };
  const Counters& counters() const { return counters_; }

 private:
  class Connection;
  void Loop();
  bool Wanted() const;
  void WaitBefore(Clock::time_point again);
  bool stopping() const { return stop_.load(std::memory_order_acquire); }
  bool finishing() const { return finish_.load(std::memory_order_acquire); }

  const StreamConfig config_;
  const std::shared_ptr<Outbox> outbox_;
  GuestThread thread_;
  std::atomic<bool> finish_{false};
  std::atomic<bool> stop_{false};
  Counters counters_;
};

}  // namespace plumbline::agent
