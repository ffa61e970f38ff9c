// One call of an agent or of a relay: reads messages, passes them to the intake, writes the
// answers.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "plumbline/v1/ingest.pb.h"
#include "server/access/gate.h"
#include "server/capsules/capsule_keeper.h"
#include "server/ingest/ack_timer.h"
#include "server/ingest/admission_queue.h"
#include "server/ingest/call_stream.h"
#include "server/ingest/call_writer.h"
#include "server/ingest/intake.h"
#include "server/stopping/stop_sender.h"
#include "server/stream/liveness.h"
#include "server/stream/sender.h"
#include "transport/redact.h"

namespace plumbline::server {

// Shared by the sessions of a service, and must outlive them.
struct SessionContext {
  Intake* intake = nullptr;
  AdmissionQueue* admission = nullptr;
  AckTimer* timer = nullptr;
  Counters* counters = nullptr;
  CapsuleKeeper* capsules = nullptr;  // null: capsules are not requested
  StopSender* stops = nullptr;        // null: no training is ended
  Liveness* liveness = nullptr;
  std::string server_version;
  uint64_t ack_batches = 8;
  bool keep_wire = false;  // true if the journal stores the bytes
  std::chrono::nanoseconds hello_within = std::chrono::seconds(30);
  const transport::Redactor* redactor = nullptr;  // null: ids are kept unchanged
};

// gRPC handles reads one after another; `mutex_` guards everything else. Lives until OnDone, which
// notifies its owner.
class Session : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                public CallStreamOwner,
                public std::enable_shared_from_this<Session> {
 public:
  // `lease`: the permissions of the caller; `peer`: the caller, as gRPC names it.
  Session(const SessionContext* context, std::shared_ptr<Lease> lease, const std::string& peer,
          std::function<void(Session*)> on_done)
      : context_(context),
        lease_(std::move(lease)),
        address_(AddressOf(peer)),
        connection_(ConnectionOf(peer)),
        on_done_(std::move(on_done)) {}

  // Begins to read; keeps itself alive from here on.
  void Begin();
  // Writes pending acknowledgements, then ends the call. The first reason counts.
  void End(const grpc::Status& status);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override;

  void OnHeld(const std::shared_ptr<CallStream>& call_stream, uint64_t sequence,
              bool at_once) override;
  void OnRefused(const std::shared_ptr<CallStream>& call_stream, uint64_t sequence,
                 const std::string& reason) override;
  void OnSuperseded(const std::shared_ptr<CallStream>& call_stream) override;
  void Resume() override;
  void OnDirective(const std::shared_ptr<CallStream>& call_stream,
                   const v1::Directive& directive) override;

 private:
  using CallStreamPtr = std::shared_ptr<CallStream>;

  void OnNoMore();
  bool Consume();
  bool Fail(const CallStreamPtr& call_stream, grpc::StatusCode code, const std::string& what);
  void OnHelloDue();
  bool Unusable(const v1::AgentMessage& message, uint64_t speaks_of, std::string why);
  bool OnHello(v1::Hello* received) PLUMB_EXCLUDES(greeting_);
  void OnPlace(const CallStreamPtr& call_stream, v1::Hello* hello,
               const AdmissionQueue::Place& place) PLUMB_EXCLUDES(greeting_);
  void StopWaiting(const v1::Goodbye& goodbye) PLUMB_REQUIRES(greeting_);
  Intake::MayWrite MayWrite() const;
  bool Greet(const CallStreamPtr& call_stream, v1::Hello* hello, const AdmissionQueue::Place& place)
      PLUMB_REQUIRES(greeting_);
  bool Refuse(const CallStreamPtr& call_stream, const absl::Status& why);
  Sender SenderOf(const v1::Hello& hello, bool shared) const;
  bool OnBatch(ParsedBatch batch);
  bool Redact(v1::Batch* batch) const;
  void OnAside(v1::AgentMessage& message);
  bool Offer(const CallStreamPtr& call_stream, uint64_t sequence, ParsedBatch batch);
  void OnHeartbeat(const v1::Heartbeat& heartbeat);
  void OnGoodbye(const v1::Goodbye& goodbye);
  CallStreamPtr Find(uint64_t stream_id);
  bool Forget(const CallStreamPtr& call_stream);
  // `ended`: its process ended its connection; false: unknown.
  void Leave(const CallStreamPtr& call_stream, bool ended);
  void LeaveIntake(const CallStreamPtr& call_stream, bool ended);
  void EndCallStream(const CallStreamPtr& call_stream, const grpc::Status& status);
  CallStreamPtr Yield(const CallStreamPtr& newer);
  void KeepFormer(const CallStreamPtr& former);
  void ReadLocked() PLUMB_REQUIRES(mutex_);
  void ReadAgainLocked() PLUMB_REQUIRES(mutex_);
  void DropRefusalsLocked(const CallStreamPtr& call_stream) PLUMB_REQUIRES(mutex_);
  void Welcome(const CallStreamPtr& call_stream);
  void OweLocked(const CallStreamPtr& call_stream) PLUMB_REQUIRES(mutex_);
  void OnAckTimer(const CallStreamPtr& call_stream);

  const SessionContext* const context_;
  const std::shared_ptr<Lease> lease_;
  const std::string address_, connection_;
  const std::function<void(Session*)> on_done_;
  std::shared_ptr<Session> self_;
  grpc::Alarm hello_due_;

  // Used only by the read side.
  grpc::ByteBuffer incoming_;
  uint64_t messages_ = 0;

  // Taken before mutex_, so that two hellos of one stream are answered one after the other.
  Mutex greeting_ PLUMB_ACQUIRED_BEFORE(mutex_);
  // Streams whose hello waits for a place.
  std::unordered_map<uint64_t, CallStreamPtr> waiting_ PLUMB_GUARDED_BY(greeting_);

  Mutex mutex_;
  std::unordered_map<uint64_t, CallStreamPtr> call_streams_ PLUMB_GUARDED_BY(mutex_);
  bool greeted_ PLUMB_GUARDED_BY(mutex_) = false;  // a hello was received
  bool shared_ PLUMB_GUARDED_BY(mutex_) = false;   // the call carries several streams
  bool by_us_ PLUMB_GUARDED_BY(mutex_) = false;    // this server ended the call or refused it
  bool paused_ PLUMB_GUARDED_BY(mutex_) = false;
  bool resumed_early_ PLUMB_GUARDED_BY(mutex_) = false;
  bool unread_ PLUMB_GUARDED_BY(mutex_) = false;  // too many answers are not written yet
  CallWriter writer_ PLUMB_GUARDED_BY(mutex_){this};
};

}  // namespace plumbline::server
