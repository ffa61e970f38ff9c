#include "transport/connection.h"

#include <algorithm>
#include <utility>

#include "transport/dialer.h"
#include "transport/wire.h"

namespace plumbline::transport {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kProtocol = 1;
constexpr milliseconds kGoodbye{300};  // for the server to close its side
constexpr milliseconds kEnd{1000};     // for the status of a call that has ended

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const StreamConfig& config) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // The minimum backoff keeps gRPC's default. It also limits the time of a handshake, and a server
  // that ten thousand clients dial at once needs that time.
  const auto retry_ms = static_cast<int>(PaceOf(config).retry_ms);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, retry_ms);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, retry_ms);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetMaxSendMessageSize(-1);
  return OpenChannel(config.target, config.credentials, args);
}

Connection::Connection(const StreamConfig& config, Outbox* outbox, StreamCounters* counters,
                       const std::shared_ptr<grpc::Channel>& channel, grpc::CompletionQueue* events)
    : config_(config), outbox_(*outbox), counters_(*counters), events_(events), stub_(channel) {}

void Connection::Start() {
  last_ack_ = last_sent_ = last_event_ = Clock::now();
  call_ = stub_.PrepareCall(&context_, StreamMethod(), events_);
  call_->StartCall(&started_);
}

Connection* Connection::Dispatch(void* tag, bool ok) {
  const Tag& t = *static_cast<Tag*>(tag);
  t.owner->Handle(t.what, ok);
  return t.owner;
}

void Connection::Tick() {
  if (finished_) return;
  WatchClock();
  SendNext();
}

void Connection::Handle(What what, bool ok) {
  switch (what) {
    case What::kStarted:
      if (!ok) return Over();
      if (broken_) return Break();
      SendHello();
      return Read();
    case What::kRead:
      reading_ = false;
      if (!ok) return Over();
      if (broken_) return Break();
      OnMessage();
      return broken_ ? Break() : Read();
    case What::kWritten:
      writing_ = false;
      if (!ok) Over();
      return;
    case What::kWritesDone:
      return;
    case What::kFinished:
      finished_ = true;
      return;
  }
}

void Connection::Read() {
  reading_ = true;
  call_->Read(&incoming_, &read_);
}

void Connection::Write(const grpc::ByteBuffer& buffer) {
  writing_ = true;
  last_sent_ = last_event_ = Clock::now();
  call_->Write(buffer, &written_);
}

void Connection::SendHello() {
  v1::AgentMessage message;
  v1::Hello* hello = message.mutable_hello();
  hello->set_stream_id(config_.stream_id);
  hello->set_protocol(kProtocol);
  hello->set_tool_version(config_.tool_version);
  for (const v1::Source& source : config_.sources) *hello->add_sources() = source;
  hello->set_next_sequence(outbox_.state().next_sequence);
  *hello->mutable_state() = State();
  hello->set_directives(config_.side != nullptr);
  if (config_.stop_on != v1::LEVEL_UNSPECIFIED) {
    hello->set_stop_on(config_.stop_on);
    hello->set_age_ns(static_cast<uint64_t>((Clock::now() - config_.opened).count()));
  }
  for (v1::SeriesSet& set : outbox_.series_sets()) *hello->add_series_sets() = std::move(set);
  Write(Frame(message));
}

void Connection::SendNext() {
  if (!welcomed_ || writing_ || broken_ || writes_done_) return;
  if (auto next = outbox_.TakeNext()) {
    if (in_flight_ == 0) last_ack_ = Clock::now();
    in_flight_ = next->sequence;
    counters_.batches_sent.fetch_add(1, std::memory_order_relaxed);
    counters_.bytes_sent.fetch_add(next->body->size(), std::memory_order_relaxed);
    const std::string number = BatchNumber(config_.stream_id, next->sequence);
    return Write(FrameBatch(std::move(next->body), number, next->unsent + NotMade().batches));
  }
  if (SendAside()) return;
  if (finishing_ && outbox_.state().empty()) return SendGoodbye();
  if (Clock::now() - last_sent_ >= milliseconds(config_.heartbeat_ms)) SendHeartbeat();
}

v1::Heartbeat Connection::State() {
  v1::Heartbeat beat;
  beat.set_stream_id(config_.stream_id);
  const Unproduced unproduced = NotMade();
  beat.set_queued_batches(outbox_.state().batches + unproduced.batches);
  const int64_t newest = config_.newest_step ? config_.newest_step() : -1;
  const int64_t oldest = std::min(outbox_.OldestUnsentStep(), unproduced.oldest_step);
  beat.set_any_step(newest >= 0);
  beat.set_newest_step(std::max<int64_t>(newest, 0));
  beat.set_oldest_unsent_step(std::min(oldest, std::max<int64_t>(newest, 0) + 1));
  if (config_.fill_heartbeat) config_.fill_heartbeat(&beat);
  return beat;
}

// Sends a message of the side channel, if batches can wait for it.
bool Connection::SendAside() {
  v1::AgentMessage message;
  if (config_.side == nullptr || !config_.side->Next(&message)) return false;
  if (message.has_capsule()) message.mutable_capsule()->set_stream_id(config_.stream_id);
  if (message.has_report()) message.mutable_report()->set_stream_id(config_.stream_id);
  Write(Frame(message));
  return true;
}

void Connection::SendHeartbeat() {
  v1::AgentMessage message;
  *message.mutable_heartbeat() = State();
  const Clock::time_point before = last_event_;
  Write(Frame(message));
  last_event_ = before;  // a heartbeat does not count as activity
}

void Connection::SendGoodbye() {
  writes_done_ = true;
  goodbye_ = Clock::now();
  call_->WritesDone(&writes_closed_);
}

void Connection::OnMessage() {
  v1::ServerMessage message;
  if (!Parse(incoming_, &message)) return Break();
  last_ack_ = Clock::now();
  if (message.has_welcome()) return OnWelcome(message.welcome());
  if (message.has_ack()) return OnAck(message.ack());
  if (message.has_directive() && config_.side != nullptr) {
    config_.side->OnDirective(message.directive());
  }
}

void Connection::OnWelcome(const v1::Welcome& welcome) {
  if (welcomed_) return;
  welcomed_ = true;
  counters_.connections.fetch_add(1, std::memory_order_relaxed);
  const bool forgot = outbox_.Restart(welcome.acknowledged());
  if (forgot && config_.server_forgot) config_.server_forgot();
  if (config_.on_acknowledged) config_.on_acknowledged(welcome.acknowledged());
  if (config_.side != nullptr) config_.side->OnWelcome();
}

void Connection::OnAck(const v1::Ack& ack) {
  for (const v1::Rejected& r : ack.rejected()) {
    outbox_.Reject(r.sequence());
    if (config_.on_rejected) config_.on_rejected(r.reason());
  }
  outbox_.Acknowledge(ack.sequence());
  if (ack.sequence() >= in_flight_) in_flight_ = 0;
  last_event_ = last_ack_;
  if (config_.on_acknowledged) config_.on_acknowledged(ack.sequence());
}

// Ends a call that has gone silent. If the other side seems to have ended the call, there may still
// be data to read, or its status may never come if this process was stopped for long. After kEnd it
// is cancelled.
void Connection::WatchClock() {
  const Clock::time_point now = Clock::now();
  if (broken_) {
    if (now - over_since_ > kEnd) context_.TryCancel();
    return;
  }
  const bool waiting = !welcomed_ || in_flight_ != 0;
  const bool silent = waiting && now - last_ack_ > milliseconds(config_.ack_timeout_ms);
  const bool sent_goodbye = writes_done_ && now - goodbye_ > kGoodbye;
  if (silent || sent_goodbye) Break();
}

// Ends the call: cancels pending operations, and asks for the status once no read is pending.
void Connection::Break() {
  if (finished_) return;
  if (!broken_) context_.TryCancel();
  Over();
}

// Handles a call that the other side ended. Does not cancel the call, because that would hide the
// reason.
void Connection::Over() {
  if (!std::exchange(broken_, true)) over_since_ = Clock::now();
  if (finish_requested_ || reading_) return;  // the cancelled read completes and calls this again
  finish_requested_ = true;
  call_->Finish(&status_, &ended_);
}

}  // namespace plumbline::transport
