// One call of Ingest.Stream for one outbox, from dialling to its end: a state machine without a
// thread. The caller runs the completion queue and passes on its events and ticks. One queue serves
// one connection of an agent, or ten thousand of a simulator.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "plumbline/v1/evidence.pb.h"
#include "plumbline/v1/ingest.pb.h"
#include "transport/credentials.h"
#include "transport/outbox.h"

namespace plumbline::transport {

// Batches of a simulator that are not pushed yet.
struct Unproduced {
  uint64_t batches = 0;
  int64_t oldest_step = kNoStep;
};

// Messages in addition to batches: directives from the server, capsules to the server. All
// functions are called by the thread that runs the connection, and must not block.
class SideChannel {
 public:
  virtual ~SideChannel() = default;
  // Called when a server has accepted the stream. The server requests missing capsules again.
  virtual void OnWelcome() = 0;
  virtual void OnDirective(const v1::Directive& directive) = 0;
  // Returns the next message to send while no batch waits; the connection fills in its stream id.
  // Returns false if there is none.
  virtual bool Next(v1::AgentMessage* message) = 0;
};

struct StreamConfig {
  std::string target;  // host:port, or unix:PATH
  std::vector<v1::Source> sources;
  uint64_t stream_id = 0;
  std::string tool_version;
  uint32_t reconnecting =
      0;  // number of clients that lose this server at once and dial it again: the world's ranks
  uint32_t backoff_first_ms = 200;  // between two tries, in a small world
  uint32_t backoff_last_ms = 5000;  // if the server is reachable and refuses
  uint32_t ack_timeout_ms = 30000;
  uint32_t heartbeat_ms = 1000;
  std::function<int64_t()> newest_step;                // for heartbeats; negative: no step yet
  std::function<Unproduced()> unproduced;              // may be null: there are none
  std::function<void(v1::Heartbeat*)> fill_heartbeat;  // fills in the other fields; may be null
  std::shared_ptr<SideChannel> side;                   // null: directives are ignored
  v1::Level stop_on = v1::LEVEL_UNSPECIFIED;           // level of findings that end the training
  std::chrono::steady_clock::time_point opened{};  // when the run was opened; gives the hello's age
  std::function<void()> server_forgot;             // called if the server lost batches that it had
                                                   // acknowledged
  // called with the acknowledged sequence; may be null
  std::function<void(uint64_t)> on_acknowledged;
  Credentials credentials;
  // Called if the server was reached and refuses the stream, or has no space for it, or if the
  // credentials cannot be used; may be null.
  std::function<void(const grpc::Status&)> on_refused;
  // Called with the reason if the server refused a batch for good; may be null.
  std::function<void(const std::string& reason)> on_rejected;
  // Called with the reason if a try reached no server; may be null.
  std::function<void(const grpc::Status&)> on_unreachable;
};

struct StreamCounters {
  std::atomic<uint64_t> connections{0};  // welcomes received
  std::atomic<uint64_t> batches_sent{0};
  std::atomic<uint64_t> bytes_sent{0};
};

// Returns a channel that, while it is polled, dials at the rate for the size of its world
// (transport/dialer.h). Errors as OpenChannel. Without credentials it fails only if the target is
// not an address.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const StreamConfig& config);

// Not thread-safe: all calls must come from the thread that runs `events`. All arguments must
// outlive it.
class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  Connection(const StreamConfig& config, Outbox* outbox, StreamCounters* counters,
             const std::shared_ptr<grpc::Channel>& channel, grpc::CompletionQueue* events);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Start();

  // Handles one event of the queue. Returns the connection that it belongs to.
  static Connection* Dispatch(void* tag, bool ok);

  // Sends due messages and checks the timeouts. Call at each event, after each push, and every 100
  // ms.
  void Tick();

  // Announces that nothing more will be pushed: sends a goodbye once the outbox is empty.
  void Finish() { finishing_ = true; }
  // Ends the call; later events make finished() true.
  void Break();

  // Returns true if the call is over: it may be destroyed, or replaced by another Connection.
  bool finished() const { return finished_; }
  bool welcomed() const { return welcomed_; }
  const grpc::Status& status() const { return status_; }        // of a finished call
  Clock::time_point last_event() const { return last_event_; }  // heartbeats do not count

 private:
  enum class What { kStarted, kRead, kWritten, kWritesDone, kFinished };
  struct Tag {
    Connection* owner;
    What what;
  };

  void Handle(What what, bool ok);
  void Over();
  void Read();
  void Write(const grpc::ByteBuffer& buffer);
  void SendHello();
  void SendNext();
  bool SendAside();
  void SendHeartbeat();
  v1::Heartbeat State();
  Unproduced NotMade() const { return config_.unproduced ? config_.unproduced() : Unproduced(); }
  void SendGoodbye();
  void OnMessage();
  void OnWelcome(const v1::Welcome& welcome);
  void OnAck(const v1::Ack& ack);
  void WatchClock();

  const StreamConfig& config_;
  Outbox& outbox_;
  StreamCounters& counters_;
  grpc::CompletionQueue* const events_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer incoming_;
  grpc::Status status_;
  Tag started_{this, What::kStarted}, read_{this, What::kRead}, written_{this, What::kWritten},
      writes_closed_{this, What::kWritesDone}, ended_{this, What::kFinished};
  bool welcomed_ = false, reading_ = false, writing_ = false, finishing_ = false;
  bool writes_done_ = false, broken_ = false, finish_requested_ = false, finished_ = false;
  uint64_t in_flight_ = 0;  // the highest sequence sent and not acknowledged
  Clock::time_point last_ack_, last_sent_, last_event_, goodbye_, over_since_;
};

}  // namespace plumbline::transport
