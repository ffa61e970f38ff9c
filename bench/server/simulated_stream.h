// One simulated agent: some ranks that send scalars in columns over one stream, through the agent's
// own outbox and connection.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "transport/connection.h"
#include "transport/outbox.h"

namespace plumbline::bench {

using Clock = std::chrono::steady_clock;

struct SimulatorOptions {
  std::string server;
  std::string run = "simulated";
  uint32_t attempt = 0;
  uint32_t ranks = 10000;
  uint32_t ranks_per_stream = 8;
  uint32_t series = 50;
  int64_t steps = 200;
  double rate = 0;             // steps per second; 0: as fast as acknowledgements allow
  bool free_running = false;   // each stream at its own pace, 20 % around the rate
  uint32_t batch_steps = 1;    // steps per batch
  uint32_t window = 64;        // limit of a stream's unacknowledged batches
  double seconds = 120;        // time limit
  int64_t fault_every = 0;     // at each n-th step one rank's router leaks; 0: never
  double breaks_a_second = 0;  // random disconnections
  std::string fault_log;       // gets a line "LAYER UNIX_NANOSECONDS" when each begins; empty: none
  uint32_t threads = 1;
  uint64_t seed = 1;
  bool goodbye = true;  // ranks report that they have finished
};

// Returns the layer of the fault planted at `step`: one incident each.
std::string FaultLayer(int64_t step);

// Belongs to the thread that runs `events`.
class SimulatedStream {
 public:
  SimulatedStream(const SimulatorOptions& options, uint32_t index, grpc::CompletionQueue* events);

  // Connects, or reconnects after a break, and sends what is due. Call every 100 ms, and Tick
  // immediately after Produce.
  void Turn(Clock::time_point now);
  void Tick() { connection_->Tick(); }
  void Break() {
    if (connection_ != nullptr) connection_->Break();
  }

  // Produces the ranks' next batch_steps steps, of which the first began at `began`. Returns false
  // if the window is full.
  bool Produce(Clock::time_point began);
  int64_t produced() const { return next_step_; }  // number of steps
  bool HasRoom() const { return unacknowledged_.size() < options_.window; }
  bool AllProduced() const { return next_step_ >= options_.steps; }
  // Returns true if everything is acknowledged and the call has ended.
  bool done() const { return over_; }
  const transport::Connection* connection() const { return connection_.get(); }

  uint64_t samples_sent() const { return samples_; }
  uint64_t samples_acknowledged() const { return samples_acknowledged_; }
  uint64_t breaks() const { return breaks_; }
  const transport::StreamCounters& counters() const { return counters_; }
  std::vector<float>& latencies() { return latencies_; }  // seconds from push to acknowledgement

  Clock::time_point next_due;  // for a free-running stream
  double pace = 1;

 private:
  void Dial();
  void OnAcknowledged(uint64_t through);
  void AddRows(int64_t first, int64_t count);
  void AddFault(int64_t step);

  struct Pushed {
    Clock::time_point at;
    uint64_t samples;
  };

  const SimulatorOptions& options_;
  const uint32_t index_;
  grpc::CompletionQueue* const events_;
  transport::StreamConfig config_;
  transport::StreamCounters counters_;
  transport::Outbox outbox_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<transport::Connection> connection_;
  Clock::time_point dial_at_;
  v1::Batch batch_;  // reused
  std::vector<double> noise_;
  std::mt19937_64 random_;
  int64_t next_step_ = 0;
  bool over_ = false;
  std::deque<Pushed> unacknowledged_;
  uint64_t acknowledged_ = 0;
  uint64_t samples_ = 0, samples_acknowledged_ = 0, breaks_ = 0;
  std::vector<float> latencies_;
};

}  // namespace plumbline::bench
