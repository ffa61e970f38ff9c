// Answers a hello: with a welcome, a refusal, or after a wait for a place.

#include <utility>

#include "server/ingest/session.h"
#include "server/process/log.h"

namespace plumbline::server {

bool Session::OnHello(v1::Hello* received) {
  const v1::Hello& hello = *received;
  CallStreamPtr call_stream;
  bool second = false;
  {
    const MutexLock lock(mutex_);
    second = greeted_ && !(shared_ && hello.shared());
    // Whether a call is shared does not change: a second hello of one stream does not change it for
    // the others.
    if (!std::exchange(greeted_, true)) shared_ = hello.shared();
    call_stream =
        std::make_shared<CallStream>(weak_from_this(), hello, shared_, context_->ack_batches);
  }
  if (second) {
    return Fail(call_stream, grpc::StatusCode::FAILED_PRECONDITION, "a second hello on one stream");
  }
  const absl::Status allowed = context_->intake->MayJoin(hello, MayWrite());
  const MutexLock greeting(greeting_);
  if (!allowed.ok()) return Greet(call_stream, received, allowed);
  waiting_.erase(call_stream->stream_id);  // an older hello of the same stream
  auto kept = std::make_shared<v1::Hello>(std::move(*received));
  auto place = context_->admission->Query(
      {Intake::RunsOf(*kept), SenderOf(*kept, call_stream->shared), kept->SpaceUsedLong(),
       weak_from_this(),
       [weak = weak_from_this(), call_stream, kept](AdmissionQueue::Place granted) {
         if (auto session = weak.lock()) session->OnPlace(call_stream, kept.get(), granted);
       }});
  if (place.has_value()) return Greet(call_stream, kept.get(), *place);
  waiting_[call_stream->stream_id] = call_stream;
  return call_stream->shared;  // other streams of the call continue
}

// Called when the queue has decided about a hello that waited. Has no effect if its stream has
// ended meanwhile.
void Session::OnPlace(const CallStreamPtr& call_stream, v1::Hello* hello,
                      const AdmissionQueue::Place& place) {
  {
    const MutexLock greeting(greeting_);
    const auto waiting = waiting_.find(call_stream->stream_id);
    if (waiting == waiting_.end() || waiting->second != call_stream) return;
    waiting_.erase(waiting);
    if (!Greet(call_stream, hello, place)) return;
  }
  if (!call_stream->shared) Resume();
}

// Called when a process of a relay has ended while its hello waits.
void Session::StopWaiting(const v1::Goodbye& goodbye) {
  const auto waiting = waiting_.find(goodbye.stream_id());
  if (waiting == waiting_.end() || !waiting->second->shared) return;
  if (goodbye.line() == 0 || goodbye.line() == waiting->second->line) waiting_.erase(waiting);
}

Intake::MayWrite Session::MayWrite() const {
  return [this](const std::string& run) { return lease_->Check(Scope::kWrite, run); };
}

// Adds the stream to the server, or refuses it. Returns false if the call must not be read on.
bool Session::Greet(const CallStreamPtr& call_stream, v1::Hello* hello,
                    const AdmissionQueue::Place& place) {
  const CallStreamPtr former = Yield(call_stream);
  auto joined =
      place.ok() ? context_->intake->Join(hello, std::static_pointer_cast<Connection>(call_stream),
                                          MayWrite(), SenderOf(*hello, call_stream->shared), *place)
                 : absl::StatusOr<Intake::Joined>(place.status());
  if (!joined.ok()) {
    if (former != nullptr) KeepFormer(former);
    return Refuse(call_stream, joined.status());
  }
  const bool room = joined->room;
  {
    const MutexLock lock(mutex_);
    if (former != nullptr) {
      former->over = true;
      DropRefusalsLocked(former);
    }
    writer_.ExpectRefusals(joined->refused);
    call_stream->joined = std::move(*joined);
    call_streams_[call_stream->stream_id] = call_stream;
  }
  context_->liveness->Joined(*hello, call_stream->joined.connection,
                             std::chrono::steady_clock::now());
  Welcome(call_stream);
  if (context_->capsules != nullptr) {
    context_->capsules->Joined(call_stream->stream_id, call_stream->joined.connection, call_stream,
                               *hello);
  }
  if (context_->stops != nullptr) {
    context_->stops->Joined(call_stream->stream_id, call_stream->joined.connection, call_stream,
                            *hello);
  }
  return room;
}

// Delays the answer: otherwise a sender that retries without a pause would get most of the free
// places.
bool Session::Refuse(const CallStreamPtr& call_stream, const absl::Status& why) {
  // The codes of both libraries are the same numbers.
  const auto code = static_cast<grpc::StatusCode>(why.raw_code());
  const std::string text(why.message());
  if (code != grpc::StatusCode::RESOURCE_EXHAUSTED) return Fail(call_stream, code, text);
  context_->timer->Schedule([weak = weak_from_this(), call_stream, code, text] {
    if (auto session = weak.lock()) session->Fail(call_stream, code, text);
  });
  return call_stream->shared;  // other streams of the call continue
}

Sender Session::SenderOf(const v1::Hello& hello, bool shared) const {
  Sender sender{lease_->Names(), address_, "", connection_, ""};
  if (!shared) return sender;
  sender.after = AddressOf(hello.origin());
  sender.line = ConnectionOf(hello.origin());
  return sender;
}

// Returns the connection that this call has for the stream of `newer`, if any: of a
// relay's process that came back, or whose stream id another process uses. That connection
// continues until the newer one is accepted, and then ends without a message. An older relay has
// already ended it.
Session::CallStreamPtr Session::Yield(const CallStreamPtr& newer) {
  const MutexLock lock(mutex_);
  const auto same = call_streams_.find(newer->stream_id);
  if (same == call_streams_.end()) return nullptr;
  const CallStreamPtr former = same->second;
  former->yields = true;
  if (newer->line == 0) {
    former->over = true;
    DropRefusalsLocked(former);
    call_streams_.erase(same);
  }
  return former;
}

// Keeps the former connection, because the newer hello was refused.
void Session::KeepFormer(const CallStreamPtr& former) {
  bool superseded, over;
  {
    const MutexLock lock(mutex_);
    former->yields = false;
    superseded = std::exchange(former->superseded, false);
    over = former->over;
  }
  if (over) return LeaveIntake(former, false);  // no connection replaced it
  if (superseded) OnSuperseded(former);
}

}  // namespace plumbline::server
