#include "server/ingest/session.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "plumbline/v1/ingest.grpc.pb.h"
#include "server/ingest/wire.h"

namespace plumbline::server {
namespace {

constexpr uint32_t kProtocol = 1;

grpc::Status ToGrpc(const absl::Status& status) {
  // The codes of both libraries are the same numbers.
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      std::string(status.message()));
}

}  // namespace

void Session::Begin() {
  self_ = shared_from_this();
  StartRead(&incoming_);
}

void Session::End(const grpc::Status& status) {
  std::lock_guard lock(mutex_);
  if (ending_) return;
  ending_ = true;
  status_ = status;
  Pump();
}

void Session::OnDone() {
  if (joined_) context_->intake->Leave(*joined_);
  on_done_(this);
  self_.reset();
}

// ---- reading -------------------------------------------------------------------------------

void Session::OnReadDone(bool ok) {
  if (!ok) return OnNoMore();
  const bool room = Consume();
  std::lock_guard lock(mutex_);
  if (!room && !std::exchange(resumed_early_, false)) {
    paused_ = true;
    return;
  }
  ReadLocked();
}

// Half-closed, or broken: OnCancel tells. What was taken is still owed an acknowledgement.
void Session::OnNoMore() {
  if (!joined_) return End(grpc::Status::OK);
  context_->intake->WhenHeld([weak = weak_from_this()] {
    if (auto session = weak.lock()) session->End(grpc::Status::OK);
  });
}

void Session::ReadLocked() {
  if (!ending_) StartRead(&incoming_);
}

void Session::Resume() {
  std::lock_guard lock(mutex_);
  if (std::exchange(paused_, false)) {
    ReadLocked();
  } else {
    resumed_early_ = true;  // OnReadDone has not looked yet
  }
}

// Handles one message. False: there is no room, do not read on.
bool Session::Consume() {
  v1::AgentMessage message;
  ParsedBatch batch;
  batch.bytes = incoming_.Length();
  const bool parsed = ParseAgentMessage(incoming_, &message);
  if (parsed && message.has_batch() && context_->keep_wire) {
    batch.wire = BatchBytes(incoming_, message);
  }
  incoming_.Clear();
  ++messages_;
  if (!parsed) return Unparsable(message);
  switch (message.what_case()) {
    case v1::AgentMessage::kHello:
      return OnHello(message.hello());
    case v1::AgentMessage::kBatch:
      batch.batch = std::move(*message.mutable_batch());
      return OnBatch(std::move(batch));
    case v1::AgentMessage::kHeartbeat:
    case v1::AgentMessage::WHAT_NOT_SET:  // from a newer agent
      break;
  }
  return true;
}

bool Session::Fail(grpc::StatusCode code, const std::string& what) {
  ++context_->counters->broken_streams;
  spdlog::warn("stream {:016x} ended: {:?}", joined_ ? joined_->stream->id : 0, what);
  End(grpc::Status(code, what));
  return true;
}

// A message of which the parser understood the number of the batch that is due is refused by that
// number; otherwise nobody can say what was lost and the stream ends.
bool Session::Unparsable(const v1::AgentMessage& message) {
  ParsedBatch batch;
  batch.refused = absl::StrCat("message ", messages_, " is no valid AgentMessage");
  const uint64_t sequence = message.has_batch() ? message.batch().sequence() : 0;
  if (joined_ && sequence > 0 && context_->intake->IsDue(*joined_, sequence)) {
    return Offer(sequence, std::move(batch));
  }
  return Fail(grpc::StatusCode::INVALID_ARGUMENT, batch.refused);
}

bool Session::OnHello(const v1::Hello& hello) {
  if (joined_) return Fail(grpc::StatusCode::FAILED_PRECONDITION, "a second hello on one stream");
  auto joined = context_->intake->Join(hello, weak_from_this());
  if (!joined.ok()) {
    ++context_->counters->broken_streams;
    spdlog::warn("hello refused: {:?}", std::string(joined.status().message()));
    End(ToGrpc(joined.status()));
    return true;
  }
  joined_ = std::move(*joined);
  Welcome(joined_->held);
  return joined_->room;
}

bool Session::OnBatch(ParsedBatch batch) {
  if (!joined_) {
    return Fail(grpc::StatusCode::FAILED_PRECONDITION, "the first message must be a hello");
  }
  const uint64_t sequence = batch.batch.sequence();
  if (sequence == 0) {
    return Fail(grpc::StatusCode::INVALID_ARGUMENT, "a batch without a sequence number");
  }
  return Offer(sequence, std::move(batch));
}

bool Session::Offer(uint64_t sequence, ParsedBatch batch) {
  const Intake::Taken taken = context_->intake->Offer(*joined_, sequence, std::move(batch));
  if (taken.outcome == Intake::Outcome::kOverflow) {
    return Fail(grpc::StatusCode::FAILED_PRECONDITION,
                absl::StrCat("batch ", sequence, " came, but too much waits for batch ", taken.next,
                             "; send again from there"));
  }
  // Its sender has not heard that it is held.
  if (taken.outcome == Intake::Outcome::kDuplicate) OnHeld(taken.held, false);
  return taken.room;
}

// ---- writing -------------------------------------------------------------------------------

void Session::Welcome(uint64_t held) {
  v1::ServerMessage message;
  message.mutable_welcome()->set_protocol(kProtocol);
  message.mutable_welcome()->set_server_version(context_->server_version);
  message.mutable_welcome()->set_acknowledged(held);
  std::lock_guard lock(mutex_);
  // An acknowledgement may be owed already; the welcome goes first.
  queue_.insert(queue_.begin(), std::move(message));
  welcomed_ = true;
  Pump();
}

void Session::OnHeld(uint64_t sequence, bool at_once) {
  std::lock_guard lock(mutex_);
  acks_.Held(sequence);
  if (at_once) acks_.Urgent();
  ScheduleLocked();
  Pump();
}

void Session::OnRefused(uint64_t sequence, const std::string& reason) {
  std::lock_guard lock(mutex_);
  acks_.Refused(sequence, reason);
}

void Session::OnSuperseded() {
  End({grpc::StatusCode::ABORTED, "this stream was opened again elsewhere"});
}

void Session::ScheduleLocked() {
  if (acks_.due() || ack_scheduled_) return;
  ack_scheduled_ = true;
  context_->timer->Schedule([weak = weak_from_this()] {
    if (auto session = weak.lock()) session->OnAckTimer();
  });
}

void Session::OnAckTimer() {
  std::lock_guard lock(mutex_);
  ack_scheduled_ = false;
  if (acks_.anything()) acks_.Urgent();
  Pump();
}

// Writes the next message, or ends the call when it should end and nothing is owed. One operation
// at a time.
void Session::Pump() {
  if (writing_ || finished_) return;
  const bool acks_owed = acks_.due() || (ending_ && acks_.anything());
  if (!broken_ && queue_.empty() && welcomed_ && acks_owed) {
    *queue_.emplace_back().mutable_ack() = acks_.Take();
  }
  if (!broken_ && !queue_.empty()) {
    outgoing_.Clear();
    bool own_buffer = false;
    grpc::SerializationTraits<v1::ServerMessage>::Serialize(queue_.front(), &outgoing_,
                                                            &own_buffer);
    queue_.erase(queue_.begin());
    writing_ = true;
    StartWrite(&outgoing_);
    return;
  }
  if (!ending_) return;
  finished_ = true;
  Finish(status_);
}

void Session::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  writing_ = false;
  broken_ |= !ok;
  Pump();
}

}  // namespace plumbline::server
