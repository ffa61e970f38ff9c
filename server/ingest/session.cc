#include "server/ingest/session.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/process/grpc_status.h"
#include "server/process/log.h"
#include "server/stream/wire.h"

namespace plumbline::server {
namespace {

constexpr uint32_t kProtocol = 1;
// Limit of a call's unwritten answers. Beyond it, the call is not read until its peer has read half
// of them, and directives, which may be lost, are not sent.
constexpr size_t kMostUnwritten = 256;

}  // namespace

void Session::Begin() {
  self_ = shared_from_this();
  const auto weak = weak_from_this();
  hello_due_.Set(
      std::chrono::system_clock::now() +
          std::chrono::duration_cast<std::chrono::system_clock::duration>(context_->hello_within),
      [weak](bool ran_out) {
        auto session = ran_out ? weak.lock() : nullptr;
        if (session != nullptr) session->OnHelloDue();
      });
  lease_->OnRevoked([weak](const absl::Status& why) {
    if (auto session = weak.lock()) session->End(ToGrpc(why));
  });
  StartRead(&incoming_);
}

void Session::End(const grpc::Status& status) {
  const MutexLock lock(mutex_);
  if (writer_.ending()) return;
  by_us_ = !status.ok() && status.error_code() != grpc::StatusCode::CANCELLED;
  for (const auto& [id, call_stream] : call_streams_) {
    if (call_stream->acks.anything() && call_stream->welcomed) writer_.SendAck(call_stream.get());
  }
  writer_.End(status);
}

void Session::OnDone() {
  std::unordered_map<uint64_t, CallStreamPtr> call_streams;
  bool ended = false;
  {
    const MutexLock greeting(greeting_);
    waiting_.clear();
    const MutexLock lock(mutex_);
    call_streams.swap(call_streams_);
    // The processes connected through a relay may be alive although the relay is not.
    ended = !by_us_ && !shared_;
  }
  for (const auto& [id, call_stream] : call_streams) LeaveIntake(call_stream, ended);
  on_done_(this);
  self_.reset();
}

// ---- reading -------------------------------------------------------------------------------

void Session::OnReadDone(bool ok) {
  if (!ok) return OnNoMore();
  const bool room = Consume();
  const MutexLock lock(mutex_);
  if (!room && !std::exchange(resumed_early_, false)) {
    paused_ = true;
    return;
  }
  ReadLocked();
}

// The peer closed its side, or the connection broke; OnCancel distinguishes them. Taken batches
// must still be acknowledged.
void Session::OnNoMore() {
  context_->intake->WhenHeld([weak = weak_from_this()] {
    if (auto session = weak.lock()) session->End(grpc::Status::OK);
  });
}

void Session::ReadLocked() {
  if (writer_.ending()) return;
  if (writer_.unwritten() >= kMostUnwritten) {
    unread_ = true;
    ++context_->counters->unread_answers;
    return;
  }
  StartRead(&incoming_);
}

// Continues reading once the peer has read enough of the answers.
void Session::ReadAgainLocked() {
  if (writer_.unwritten() <= kMostUnwritten / 2 && std::exchange(unread_, false)) ReadLocked();
}

// Drops the queued refusals of a stream whose peer is gone.
void Session::DropRefusalsLocked(const CallStreamPtr& call_stream) {
  writer_.DropRefusals(call_stream->acks.refused());
  call_stream->acks.Take();
  ReadAgainLocked();
}

void Session::Resume() {
  const MutexLock lock(mutex_);
  if (std::exchange(paused_, false)) {
    ReadLocked();
  } else {
    resumed_early_ = true;  // OnReadDone has not checked yet
  }
}

// Handles one message. Returns false if there is no space; then the caller must not read on.
bool Session::Consume() {
  ParsedBatch batch;
  batch.bytes = incoming_.Length();
  const auto held = NewAgentMessage(batch.bytes);
  v1::AgentMessage& message = *held;
  const bool parsed = ParseAgentMessage(incoming_, &message);
  const uint64_t speaks_of = parsed ? 0 : HeadOf(incoming_).stream_id;
  bool damaged = false;
  if (parsed && message.has_batch()) {
    const bool checked = message.backlog().has_batch_crc32c();
    if (checked || context_->keep_wire) batch.wire = BatchBytes(incoming_, message);
    damaged = checked && Checksum(batch.wire) != message.backlog().batch_crc32c();
    if (!context_->keep_wire) batch.wire = WireBytes();
  }
  incoming_.Clear();
  ++messages_;
  if (!parsed) {
    return Unusable(message, speaks_of,
                    absl::StrCat("message ", messages_, " is not a valid AgentMessage"));
  }
  if (damaged) {
    ++context_->counters->damaged_batches;
    return Unusable(message, message.batch().stream_id(),
                    absl::StrCat("batch ", message.batch().sequence(),
                                 " was damaged on the way: its checksum (CRC-32C) does not match"));
  }
  switch (message.what_case()) {
    case v1::AgentMessage::kHello:
      return OnHello(message.mutable_hello());
    case v1::AgentMessage::kBatch:
      batch.batch = {held, message.mutable_batch()};
      batch.unsent = message.backlog().unsent_batches();
      return OnBatch(std::move(batch));
    case v1::AgentMessage::kGoodbye:
      OnGoodbye(message.goodbye());
      break;
    case v1::AgentMessage::kCapsule:
    case v1::AgentMessage::kReport:
      OnAside(message);
      break;
    case v1::AgentMessage::kHeartbeat:
      OnHeartbeat(message.heartbeat());
      break;
    case v1::AgentMessage::WHAT_NOT_SET:  // from a newer agent
      break;
  }
  return true;
}

// Ends a call that sent no hello in time, so that it does not hold memory.
void Session::OnHelloDue() {
  {
    const MutexLock lock(mutex_);
    if (greeted_ || writer_.ending()) return;
  }
  ++context_->counters->slow_hellos;
  const double seconds = std::chrono::duration<double>(context_->hello_within).count();
  End({grpc::StatusCode::DEADLINE_EXCEEDED,
       absl::StrCat("no hello within ", seconds, " s (ingest.hello_seconds)")});
}

// Ends the stream, and the call unless it is shared. If `call_stream` is null, ends the call.
bool Session::Fail(const CallStreamPtr& call_stream, grpc::StatusCode code,
                   const std::string& what) {
  ++context_->counters->broken_streams;
  LogWarning("stream {:016x} ended: {:?}", call_stream ? call_stream->stream_id : 0, what);
  if (call_stream != nullptr && call_stream->shared) {
    Leave(call_stream, false);
    EndCallStream(call_stream, grpc::Status(code, what));
  } else {
    End(grpc::Status(code, what));
  }
  return true;
}

// Handles a message that cannot be used. If its batch has the next expected number, refuses the
// batch by that number. Otherwise the loss is unknown, and the stream ends. In a shared call only
// the stream that the message names ends, so that an agent's invalid data does not affect others.
bool Session::Unusable(const v1::AgentMessage& message, uint64_t speaks_of, std::string why) {
  ParsedBatch batch;
  batch.batch = std::make_shared<v1::Batch>();
  batch.refused = std::move(why);
  const uint64_t sequence = message.has_batch() ? message.batch().sequence() : 0;
  const CallStreamPtr call_stream = Find(message.batch().stream_id());
  if (call_stream != nullptr && sequence > 0 &&
      context_->intake->IsDue(call_stream->joined, sequence)) {
    return Offer(call_stream, sequence, std::move(batch));
  }
  bool shared;
  {
    const MutexLock lock(mutex_);
    shared = shared_;
  }
  const CallStreamPtr theirs = shared && speaks_of != 0 ? Find(speaks_of) : nullptr;
  if (shared && speaks_of != 0 && theirs == nullptr) return true;  // it has just ended
  return Fail(theirs, grpc::StatusCode::INVALID_ARGUMENT, batch.refused);
}

// Handles messages other than batches, of a stream that this call carries.
void Session::OnAside(v1::AgentMessage& message) {
  const uint64_t stream_id =
      message.has_capsule() ? message.capsule().stream_id() : message.report().stream_id();
  const CallStreamPtr call_stream = Find(stream_id);
  if (call_stream == nullptr || call_stream->stream_id != stream_id ||
      context_->capsules == nullptr)
    return;
  if (message.has_report()) return context_->capsules->OnReport(stream_id, message.report());
  context_->capsules->OnPart(stream_id, std::move(*message.mutable_capsule()));
}

bool Session::OnBatch(ParsedBatch batch) {
  const CallStreamPtr call_stream = Find(batch.batch->stream_id());
  if (call_stream == nullptr) {
    const MutexLock lock(mutex_);
    if (shared_) return true;  // of a stream that has just ended
  }
  if (call_stream == nullptr) {
    return Fail(nullptr, grpc::StatusCode::FAILED_PRECONDITION,
                "the first message must be a hello");
  }
  const uint64_t sequence = batch.batch->sequence();
  if (sequence == 0) {
    return Fail(call_stream, grpc::StatusCode::INVALID_ARGUMENT,
                "a batch without a sequence number");
  }
  for (const v1::Source& source : batch.batch->sources()) {
    if (auto s = lease_->Check(Scope::kWrite, source.run()); !s.ok()) {
      return Fail(call_stream, grpc::StatusCode::PERMISSION_DENIED, std::string(s.message()));
    }
  }
  // The server gave the process a later attempt, and the journal holds the given one.
  const uint32_t ahead = call_stream->joined.ahead;
  if (ahead > 0) Attempts::Raise(ahead, batch.batch->mutable_sources());
  const bool changed = Redact(batch.batch.get()) || ahead > 0;
  if (changed && context_->keep_wire) batch.wire = WireBytes(batch.batch->SerializeAsString());
  context_->liveness->Heard(call_stream->stream_id, *batch.batch, std::chrono::steady_clock::now());
  return Offer(call_stream, sequence, std::move(batch));
}

// Redacts before anything is kept: the journal, the rules and the store get only hashes.
bool Session::Redact(v1::Batch* batch) const {
  if (context_->redactor == nullptr) return false;
  const uint64_t changed = context_->redactor->Redact(batch);
  context_->counters->redacted += changed;
  return changed > 0;
}

bool Session::Offer(const CallStreamPtr& call_stream, uint64_t sequence, ParsedBatch batch) {
  const Intake::Taken taken =
      context_->intake->Offer(call_stream->joined, sequence, std::move(batch));
  if (taken.refused > 0) {
    const MutexLock lock(mutex_);
    writer_.ExpectRefusals(taken.refused);
  }
  if (taken.outcome == Intake::Outcome::kOverflow) {
    return Fail(call_stream, grpc::StatusCode::FAILED_PRECONDITION,
                absl::StrCat("batch ", sequence, " arrived, but too many bytes wait for batch ",
                             taken.next, "; send again from there"));
  }
  // Its sender has not received the acknowledgement.
  if (taken.outcome == Intake::Outcome::kDuplicate) OnHeld(call_stream, taken.held, false);
  return taken.room;
}

void Session::OnHeartbeat(const v1::Heartbeat& heartbeat) {
  if (const CallStreamPtr call_stream = Find(heartbeat.stream_id())) {
    context_->intake->Hear(call_stream->joined, heartbeat);
    context_->liveness->Heard(call_stream->stream_id, heartbeat, std::chrono::steady_clock::now());
  }
}

void Session::OnGoodbye(const v1::Goodbye& goodbye) {
  CallStreamPtr call_stream;
  {
    const MutexLock greeting(greeting_);
    const MutexLock lock(mutex_);
    StopWaiting(goodbye);
    const auto found = call_streams_.find(goodbye.stream_id());
    if (found == call_streams_.end() || !found->second->shared) return;
    call_stream = found->second;
    // The relay's goodbye is for an earlier connection: the stream continues with the newer one.
    if (goodbye.line() != 0 && goodbye.line() != call_stream->line) return;
    call_stream->over = true;
    DropRefusalsLocked(call_stream);
  }
  Leave(call_stream, true);
}

// ---- streams -------------------------------------------------------------------------------

// Returns the stream that a message belongs to. If the call is not shared, its only stream takes
// every message; a message with another id is refused by number.
Session::CallStreamPtr Session::Find(uint64_t stream_id) {
  const MutexLock lock(mutex_);
  if (!shared_) return call_streams_.empty() ? nullptr : call_streams_.begin()->second;
  const auto found = call_streams_.find(stream_id);
  return found == call_streams_.end() ? nullptr : found->second;
}

// Returns false if the stream no longer exists.
bool Session::Forget(const CallStreamPtr& call_stream) {
  const MutexLock lock(mutex_);
  call_stream->over = true;
  const auto found = call_streams_.find(call_stream->stream_id);
  if (found == call_streams_.end() || found->second != call_stream) return false;
  call_streams_.erase(found);
  return true;
}

void Session::Leave(const CallStreamPtr& call_stream, bool ended) {
  if (Forget(call_stream)) LeaveIntake(call_stream, ended);
}

void Session::LeaveIntake(const CallStreamPtr& call_stream, bool ended) {
  context_->intake->Leave(call_stream->joined, ended);
  context_->liveness->Left(call_stream->stream_id, call_stream->joined.connection,
                           std::chrono::steady_clock::now());
  if (context_->capsules != nullptr) {
    context_->capsules->Left(call_stream->stream_id, call_stream->joined.connection);
  }
  if (context_->stops != nullptr) {
    context_->stops->Left(call_stream->stream_id, call_stream->joined.connection);
  }
}

// Reports to the peer of a shared call that one of its streams has ended.
void Session::EndCallStream(const CallStreamPtr& call_stream, const grpc::Status& status) {
  const MutexLock lock(mutex_);
  writer_.SendAck(call_stream.get(), &status);
}

void Session::OnSuperseded(const CallStreamPtr& call_stream) {
  const grpc::Status status(grpc::StatusCode::ABORTED, "this stream was opened again elsewhere");
  if (!call_stream->shared) return End(status);
  {
    const MutexLock lock(mutex_);
    if (call_stream->over) return;
    if (call_stream->yields) {  // the newer hello of this call took the stream, unless that hello
                                // is refused
      call_stream->superseded = true;
      return;
    }
  }
  Forget(call_stream);
  EndCallStream(call_stream, status);
}

// ---- writing -------------------------------------------------------------------------------

void Session::Welcome(const CallStreamPtr& call_stream) {
  v1::ServerMessage message;
  message.mutable_welcome()->set_protocol(kProtocol);
  message.mutable_welcome()->set_server_version(context_->server_version);
  message.mutable_welcome()->set_acknowledged(call_stream->joined.held);
  message.mutable_welcome()->set_stream_id(call_stream->stream_id);
  const MutexLock lock(mutex_);
  writer_.Report(std::move(message));
  call_stream->welcomed = true;
  OweLocked(call_stream);  // batches may have been held meanwhile
}

void Session::OnHeld(const CallStreamPtr& call_stream, uint64_t sequence, bool at_once) {
  const MutexLock lock(mutex_);
  call_stream->acks.Held(sequence);
  if (at_once) call_stream->acks.Urgent();
  OweLocked(call_stream);
}

void Session::OnRefused(const CallStreamPtr& call_stream, uint64_t sequence,
                        const std::string& reason) {
  const MutexLock lock(mutex_);
  if (!call_stream->over) return call_stream->acks.Refused(sequence, reason);
  writer_.DropRefusals(1);
  ReadAgainLocked();
}

void Session::OnDirective(const CallStreamPtr& call_stream, const v1::Directive& directive) {
  const MutexLock lock(mutex_);
  if (call_stream->over || !call_stream->welcomed) return;
  // A directive that ends a training is rare, and is not repeated if it is lost.
  if (writer_.unwritten() >= (directive.has_stop() ? 2 : 1) * kMostUnwritten) return;
  v1::ServerMessage message;
  *message.mutable_directive() = directive;
  writer_.Report(std::move(message));
}

// Queues an acknowledgement that is due, or schedules a later check.
void Session::OweLocked(const CallStreamPtr& call_stream) {
  if (call_stream->over || !call_stream->welcomed || !call_stream->acks.anything()) return;
  if (call_stream->acks.due()) {
    writer_.Owe(call_stream);
  } else if (!std::exchange(call_stream->scheduled, true)) {
    context_->timer->Schedule(
        [weak = weak_from_this(), weak_leg = std::weak_ptr<CallStream>(call_stream)] {
          auto session = weak.lock();
          auto owing = weak_leg.lock();
          if (session && owing) session->OnAckTimer(owing);
        });
  }
}

void Session::OnAckTimer(const CallStreamPtr& call_stream) {
  const MutexLock lock(mutex_);
  call_stream->scheduled = false;
  if (call_stream->acks.anything()) call_stream->acks.Urgent();
  OweLocked(call_stream);
}

void Session::OnWriteDone(bool ok) {
  const MutexLock lock(mutex_);
  writer_.Written(ok);
  ReadAgainLocked();
}

}  // namespace plumbline::server
