// One connection of an agent: reads messages, hands them to the intake, writes what is owed.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plumbline/v1/ingest.pb.h"
#include "server/ingest/ack_policy.h"
#include "server/ingest/ack_timer.h"
#include "server/ingest/intake.h"

namespace plumbline::server {

// What the sessions of a service share. All of it must outlive them.
struct SessionContext {
  Intake* intake = nullptr;
  AckTimer* timer = nullptr;
  Counters* counters = nullptr;
  std::string server_version;
  uint64_t ack_batches = 8;
  bool keep_wire = false;  // the journal wants the bytes
};

// Reads are handled one after another by gRPC; writes, the end and the resumption of reading are
// guarded by `mutex_`. Lives until OnDone, then tells its owner.
class Session : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                public Connection,
                public std::enable_shared_from_this<Session> {
 public:
  Session(const SessionContext* context, std::function<void(Session*)> on_done)
      : context_(context), on_done_(std::move(on_done)), acks_(context->ack_batches) {}

  // Keeps itself alive from here on and reads.
  void Begin();
  // Sends what is owed, then ends the call. The first reason wins.
  void End(const grpc::Status& status);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override;

  void OnHeld(uint64_t sequence, bool at_once) override;
  void OnRefused(uint64_t sequence, const std::string& reason) override;
  void OnSuperseded() override;
  void Resume() override;

 private:
  void OnNoMore();
  bool Consume();
  bool Fail(grpc::StatusCode code, const std::string& what);
  bool Unparsable(const v1::AgentMessage& message);
  bool OnHello(const v1::Hello& hello);
  bool OnBatch(ParsedBatch batch);
  bool Offer(uint64_t sequence, ParsedBatch batch);
  void ReadLocked();
  void Welcome(uint64_t held);
  void ScheduleLocked();
  void OnAckTimer();
  void Pump();

  const SessionContext* const context_;
  const std::function<void(Session*)> on_done_;
  std::shared_ptr<Session> self_;

  // Read side.
  grpc::ByteBuffer incoming_;
  uint64_t messages_ = 0;
  std::optional<Intake::Joined> joined_;  // empty before the hello

  std::mutex mutex_;
  bool paused_ = false;
  bool resumed_early_ = false;
  AckPolicy acks_;
  bool ack_scheduled_ = false;
  bool welcomed_ = false;
  std::vector<v1::ServerMessage> queue_;
  grpc::ByteBuffer outgoing_;
  bool writing_ = false;
  bool broken_ = false;  // a write failed: nobody listens
  bool ending_ = false;
  bool finished_ = false;
  grpc::Status status_;
};

}  // namespace plumbline::server
