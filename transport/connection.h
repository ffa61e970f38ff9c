// One call of Ingest.Stream for one outbox, from dialling to its end: a state machine without a
// thread. Whoever runs the completion queue hands it its events and ticks; one queue serves one
// connection of an agent, or ten thousand of a simulator.
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

// Batches that exist somewhere and are not pushed yet: a simulator's.
struct Unproduced {
  uint64_t batches = 0;
  int64_t oldest_step = kNoStep;
};

// What goes beside batches: directives down, capsules up. Every call comes from the thread that
// runs the connection, and none may block.
class SideChannel {
 public:
  virtual ~SideChannel() = default;
  // A server welcomed us: it asks again for what it lacks.
  virtual void OnWelcome() = 0;
  virtual void OnDirective(const v1::Directive& directive) = 0;
  // The next message to send when no batch waits; its stream id is filled in by the connection.
  // False: none.
  virtual bool Next(v1::AgentMessage* message) = 0;
};

struct StreamConfig {
  std::string target;  // host:port, or unix:PATH
  std::vector<v1::Source> sources;
  uint64_t stream_id = 0;
  std::string tool_version;
  uint32_t reconnecting =
      0;  // how many lose this server at once and dial it again: the world's ranks
  uint32_t backoff_first_ms = 200;  // between two tries, of a small world
  uint32_t backoff_last_ms = 5000;  // of a server that is there and refuses
  uint32_t ack_timeout_ms = 30000;
  uint32_t heartbeat_ms = 1000;
  std::function<int64_t()> newest_step;                // for heartbeats; negative: no step yet
  std::function<Unproduced()> unproduced;              // may be null: none
  std::function<void(v1::Heartbeat*)> fill_heartbeat;  // what else it says; may be null
  std::shared_ptr<SideChannel> side;                   // null: directives are ignored
  v1::Level stop_on = v1::LEVEL_UNSPECIFIED;           // of findings that end the training
  std::chrono::steady_clock::time_point opened{};      // the run; of the hello's age
  std::function<void()> server_forgot;                 // it no longer holds what it acknowledged
  std::function<void(uint64_t)> on_acknowledged;       // through which sequence; may be null
  Credentials credentials;
  // The server was there and will not have us, or has no space for us, or our credentials cannot be
  // used; may be null.
  std::function<void(const grpc::Status&)> on_refused;
  // The server refused a batch for good, and why; may be null.
  std::function<void(const std::string& reason)> on_rejected;
  // A try found nobody, and why; may be null.
  std::function<void(const grpc::Status&)> on_unreachable;
};

struct StreamCounters {
  std::atomic<uint64_t> connections{0};  // welcomes received
  std::atomic<uint64_t> batches_sent{0};
  std::atomic<uint64_t> bytes_sent{0};
};

// A channel that dials as often as the size of its world says (transport/dialer.h), while it is
// polled. Errors as OpenChannel; none without credentials but for a target that is no address.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const StreamConfig& config);

// Not thread-safe: all calls from the thread that runs `events`. What it is given must outlive it.
class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  Connection(const StreamConfig& config, Outbox* outbox, StreamCounters* counters,
             const std::shared_ptr<grpc::Channel>& channel, grpc::CompletionQueue* events);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Start();

  // Hands on one event of the queue. Returns whose it was.
  static Connection* Dispatch(void* tag, bool ok);

  // Sends what is due and watches the clock: call at each event, after each push, and every 100 ms.
  void Tick();

  // Nothing more will be pushed: says goodbye once the outbox is empty.
  void Finish() { finishing_ = true; }
  // Ends the call; finished() comes true by events that follow.
  void Break();

  // Over: may be destroyed, or started anew by another Connection.
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
  void SayGoodbye();
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
  bool writes_done_ = false, broken_ = false, finish_asked_ = false, finished_ = false;
  uint64_t in_flight_ = 0;  // the highest sequence sent and not acknowledged
  Clock::time_point last_ack_, last_sent_, last_event_, goodbye_, over_since_;
};

}  // namespace plumbline::transport
