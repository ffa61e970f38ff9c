#include "server/relay/stream_multiplexer.h"

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>

#include <deque>
#include <utility>

#include "server/process/log.h"
#include "transport/diagnosis.h"
#include "transport/wire.h"

namespace plumbline::server {
namespace {

constexpr size_t kMuch = 32u << 20;  // bytes that wait to be sent; beyond it, reading stops
constexpr size_t kOverhead = 512;    // memory of a waiting message in addition to its bytes
constexpr size_t kLittle = kMuch / 2;
constexpr std::chrono::milliseconds kLook{200};
constexpr std::chrono::seconds kProbeEvery{5};
constexpr std::chrono::seconds kEnd{1};  // for the status of a call that upstream has ended

}  // namespace

// One call to the upstream server. Keeps itself alive until it is over.
class StreamMultiplexer::Upstream
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Upstream(std::shared_ptr<StreamMultiplexer> board, const std::shared_ptr<grpc::Channel>& channel)
      : board_(std::move(board)), stub_(channel) {}

  void Begin(std::shared_ptr<Upstream> self) {
    self_ = std::move(self);
    self_weak_ = self_;
    stub_.PrepareBidiStreamingCall(&context_, transport::StreamMethod(), {}, this);
    AddHold();  // writes come from other threads
    StartRead(&incoming_);
    StartCall();
  }

  // Returns false if more than kMuch bytes wait.
  bool Send(const grpc::ByteBuffer& message) {
    const MutexLock lock(mutex_);
    if (closed_) return true;  // the end of the call reports it to all lines
    bytes_ += message.Length() + kOverhead;
    queue_.push_back(message);
    PumpLocked();
    return bytes_ <= kMuch;
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (ok) {
      board_->OnMessage(this, incoming_);
      return StartRead(&incoming_);
    }
    const MutexLock lock(mutex_);
    closed_ = true;
    overdue_.Set(std::chrono::system_clock::now() + kEnd, [weak = self_weak_](bool ran_out) {
      const auto upstream = ran_out ? weak.lock() : nullptr;
      if (upstream != nullptr) upstream->Cancel();
    });
    LetGoLocked();
  }

  void OnWriteDone(bool ok) override {
    bool room = false;
    {
      const MutexLock lock(mutex_);
      writing_ = false;
      const size_t before = bytes_;
      bytes_ -= queue_.front().Length() + kOverhead;
      queue_.pop_front();
      room = before > kLittle && bytes_ <= kLittle;
      if (!ok) context_.TryCancel();
      if (closed_ || !ok) {
        LetGoLocked();
      } else {
        PumpLocked();
      }
    }
    if (room) board_->OnRoom(this);
  }

  void OnDone(const grpc::Status& status) override {
    board_->OnEnded(this, status);
    self_.reset();
  }

 private:
  void PumpLocked() PLUMB_REQUIRES(mutex_) {
    if (writing_ || queue_.empty() || closed_) return;
    writing_ = true;
    StartWrite(&queue_.front());
  }

  void LetGoLocked() PLUMB_REQUIRES(mutex_) {
    if (!closed_ || writing_ || std::exchange(let_go_, true)) return;
    RemoveHold();
  }

  const std::shared_ptr<StreamMultiplexer> board_;
  std::shared_ptr<Upstream> self_;
  std::weak_ptr<Upstream> self_weak_;
  grpc::Alarm overdue_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;
  Mutex mutex_;
  std::deque<grpc::ByteBuffer> queue_ PLUMB_GUARDED_BY(mutex_);  // the first is being written
  size_t bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  bool writing_ PLUMB_GUARDED_BY(mutex_) = false;
  bool closed_ PLUMB_GUARDED_BY(mutex_) = false;
  bool let_go_ PLUMB_GUARDED_BY(mutex_) = false;
};

StreamMultiplexer::StreamMultiplexer(const std::string& target, transport::Credentials credentials)
    : target_(target) {
  config_.target = target;
  config_.credentials = std::move(credentials);
  dialler_ = std::thread([this] { KeepDialling(); });
}

StreamMultiplexer::~StreamMultiplexer() {
  dialling_ = false;
  dialler_.join();
}

// The channel must be polled between two calls. Otherwise gRPC notices only every 5 s that the
// server is back (transport/dialer.h).
void StreamMultiplexer::KeepDialling() {
  grpc::CompletionQueue events;
  while (dialling_) {
    std::shared_ptr<grpc::Channel> channel;
    {
      const MutexLock lock(mutex_);
      channel = channel_;
    }
    if (channel == nullptr) {
      std::this_thread::sleep_for(kLook);
      continue;
    }
    channel->NotifyOnStateChange(channel->GetState(true), std::chrono::system_clock::now() + kLook,
                                 &events, this);
    void* tag = nullptr;
    bool ok = false;
    events.Next(&tag, &ok);
  }
}

// Returns null, and why, if our credentials cannot be used. They are read again for each call.
std::shared_ptr<StreamMultiplexer::Upstream> StreamMultiplexer::CallLocked(grpc::Status* why) {
  if (upstream_ == nullptr) {
    if (channel_ == nullptr || config_.credentials.any()) {
      auto channel = transport::MakeChannel(config_);
      if (!channel.ok()) {
        const std::string text(channel.status().message());
        LogError("relay: {}", text);
        *why = {grpc::StatusCode::UNAVAILABLE, "the relay cannot authenticate itself: " + text};
        return nullptr;
      }
      channel_ = *std::move(channel);
    }
    ++counters_.calls;
    upstream_ = std::make_shared<Upstream>(shared_from_this(), channel_);
    upstream_->Begin(upstream_);
  }
  return upstream_;
}

uint64_t StreamMultiplexer::Open(uint64_t stream_id, const std::shared_ptr<Line>& line,
                                 v1::Hello hello) {
  uint64_t number = 0;
  std::shared_ptr<Upstream> upstream;
  grpc::Status why(grpc::StatusCode::UNAVAILABLE, "the relay is shutting down");
  {
    const MutexLock lock(mutex_);
    if (!shut_) upstream = CallLocked(&why);
    if (upstream != nullptr) {
      number = ++last_number_;
      pending_[number] = {number, stream_id, line};
    }
  }
  if (upstream == nullptr) {
    line->End(why);
    return 0;
  }
  v1::AgentMessage message;
  *message.mutable_hello() = std::move(hello);
  message.mutable_hello()->set_shared(true);
  message.mutable_hello()->set_line(number);
  ++counters_.forwarded;
  upstream->Send(transport::Frame(message));
  return number;
}

bool StreamMultiplexer::Send(uint64_t stream_id, const std::shared_ptr<Line>& line,
                             const grpc::ByteBuffer& message) {
  std::shared_ptr<Upstream> upstream;
  {
    const MutexLock lock(mutex_);
    const auto found = lines_.find(stream_id);
    if (found == lines_.end() || found->second.line != line) return true;  // it is being ended
    upstream = upstream_;
  }
  if (upstream == nullptr) return true;
  ++counters_.forwarded;
  if (upstream->Send(message)) return true;
  const MutexLock lock(mutex_);
  waiting_.push_back(line);
  return false;
}

void StreamMultiplexer::Close(uint64_t stream_id, uint64_t number) {
  std::shared_ptr<Upstream> upstream;
  {
    const MutexLock lock(mutex_);
    const auto pending = pending_.find(number);
    const auto carried = lines_.find(stream_id);
    if (pending != pending_.end()) {
      pending->second.line = nullptr;  // its answer is still to come
    } else if (carried != lines_.end() && carried->second.number == number) {
      lines_.erase(carried);
    } else {
      return;
    }
    upstream = upstream_;
  }
  if (upstream == nullptr) return;
  v1::AgentMessage message;
  message.mutable_goodbye()->set_stream_id(stream_id);
  message.mutable_goodbye()->set_line(number);
  upstream->Send(transport::Frame(message));
}

void StreamMultiplexer::Shutdown() {
  std::vector<std::shared_ptr<Line>> lines;
  std::shared_ptr<Upstream> upstream;
  {
    const MutexLock lock(mutex_);
    shut_ = true;
    lines = TakeAllLocked();
    upstream = upstream_;
  }
  for (const auto& line : lines) {
    line->End({grpc::StatusCode::UNAVAILABLE, "the relay is shutting down"});
  }
  if (upstream != nullptr) upstream->Cancel();
}

// Removes all lines. Returns those that still exist.
std::vector<std::shared_ptr<Line>> StreamMultiplexer::TakeAllLocked() {
  std::vector<std::shared_ptr<Line>> all;
  for (auto& [id, carried] : lines_) all.push_back(std::move(carried.line));
  for (auto& [number, carried] : pending_) {
    if (carried.line != nullptr) all.push_back(std::move(carried.line));
  }
  lines_.clear();
  pending_.clear();
  waiting_.clear();
  return all;
}

// Returns the line whose hello is answered; if there is none, its number is 0. An older server does
// not repeat the number: it answers the newest hello of the stream.
StreamMultiplexer::Carried StreamMultiplexer::TakePendingLocked(uint64_t stream_id,
                                                                uint64_t number) {
  for (auto it = pending_.rbegin(); number == 0 && it != pending_.rend(); ++it) {
    if (it->second.stream_id == stream_id) number = it->first;
  }
  const auto found = pending_.find(number);
  if (found == pending_.end() || found->second.stream_id != stream_id) return {};
  Carried carried = std::move(found->second);
  pending_.erase(found);
  return carried;
}

void StreamMultiplexer::OnMessage(const Upstream* from, const grpc::ByteBuffer& buffer) {
  v1::ServerMessage message;
  if (!transport::Parse(buffer, &message)) return;
  const uint64_t id = message.has_welcome() ? message.welcome().stream_id()
                      : message.has_ack()   ? message.ack().stream_id()
                                            : message.directive().stream_id();
  if (id == 0) {
    LogError("{} accepts one stream per call: it is older than this relay", target_);
    return OnEnded(from,
                   {grpc::StatusCode::UNIMPLEMENTED,
                    "the upstream server accepts one stream per call; connect to it directly"});
  }
  if (message.has_welcome()) return OnWelcome(message.welcome(), buffer);
  if (!message.ack().ended().empty()) return OnStreamEnded(message.ack());
  HandDown(id, message.ack().line(), buffer);
}

// Assigns the stream to that line.
void StreamMultiplexer::OnWelcome(const v1::Welcome& welcome, const grpc::ByteBuffer& buffer) {
  std::shared_ptr<Line> older, line;
  {
    const MutexLock lock(mutex_);
    fault_.clear();
    logged_.clear();
    Carried newer = TakePendingLocked(welcome.stream_id(), welcome.line());
    if (newer.number == 0) {
      ++counters_.unrouted;
      return;
    }
    line = newer.line;
    const auto former = lines_.find(welcome.stream_id());
    if (former != lines_.end()) {
      older = std::move(former->second.line);
      lines_.erase(former);
    }
    if (line != nullptr) lines_[welcome.stream_id()] = std::move(newer);
  }
  if (older != nullptr)
    older->End({grpc::StatusCode::ABORTED, "this stream was opened again elsewhere"});
  if (line == nullptr) return;
  line->Write(buffer);
  line->Resume();
}

// The upstream server refuses a hello, or ends a stream that it had welcomed.
void StreamMultiplexer::OnStreamEnded(const v1::Ack& ack) {
  std::shared_ptr<Line> line;
  {
    const MutexLock lock(mutex_);
    Carried ended = TakePendingLocked(ack.stream_id(), ack.line());
    const auto carried = lines_.find(ack.stream_id());
    if (ended.number == 0 && carried != lines_.end() &&
        (ack.line() == 0 || ack.line() == carried->second.number)) {
      ended = std::move(carried->second);
      lines_.erase(carried);
    }
    line = std::move(ended.line);
  }
  if (line == nullptr) {
    ++counters_.unrouted;
    return;
  }
  line->End({static_cast<grpc::StatusCode>(ack.ended_code()), ack.ended()});
}

void StreamMultiplexer::HandDown(uint64_t stream_id, uint64_t number,
                                 const grpc::ByteBuffer& buffer) {
  std::shared_ptr<Line> line;
  {
    const MutexLock lock(mutex_);
    const auto found = lines_.find(stream_id);
    if (found != lines_.end() && (number == 0 || number == found->second.number))
      line = found->second.line;
  }
  if (line == nullptr) {
    ++counters_.unrouted;
  } else {
    line->Write(buffer);
  }
}

void StreamMultiplexer::OnRoom(const Upstream* from) {
  std::vector<std::shared_ptr<Line>> waiting;
  {
    const MutexLock lock(mutex_);
    if (upstream_.get() == from) waiting.swap(waiting_);
  }
  for (const auto& line : waiting) line->Resume();
}

// Agents keep batches that are not acknowledged, and reconnect.
void StreamMultiplexer::OnEnded(const Upstream* from, const grpc::Status& status) {
  std::vector<std::shared_ptr<Line>> lines;
  std::shared_ptr<Upstream> over;
  {
    const MutexLock lock(mutex_);
    if (upstream_.get() != from) return;
    over = std::exchange(upstream_, nullptr);
    lines = TakeAllLocked();
    std::string why = status.ok() ? "ended the call" : transport::TextOf(status);
    if (!shut_ && !lines.empty() && logged_ != why) {
      LogWarning("{}: {}; {} streams are waiting", target_, why, lines.size());
      logged_ = std::move(why);
    }
  }
  over->Cancel();
  const grpc::Status reason = ReasonFor(status);
  for (const auto& line : lines) line->End(reason);
  if (!lines.empty()) FindFault(status);
}

// Returns the answer to the agents. If waiting does not help, the answer is a refusal, which the
// agents print.
grpc::Status StreamMultiplexer::ReasonFor(const grpc::Status& status) {
  const MutexLock lock(mutex_);
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && !fault_.empty())
    return {grpc::StatusCode::FAILED_PRECONDITION, "the server above this relay: " + fault_};
  if (!status.ok() && status.error_code() != grpc::StatusCode::CANCELLED) return status;
  return {grpc::StatusCode::UNAVAILABLE, "the upstream server does not answer"};
}

// Diagnoses the fault after the lines have ended, because this may take two seconds.
void StreamMultiplexer::FindFault(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return;
  {
    const MutexLock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (shut_ || now < next_probe_) return;
    next_probe_ = now + kProbeEvery;
  }
  const transport::Diagnosis found = transport::Diagnose(target_, config_.credentials, status);
  std::string fault = transport::NeedsChange(found.fault) ? found.text : std::string();
  const MutexLock lock(mutex_);
  if (!fault.empty() && fault != fault_) {
    LogError("{}; a relay has relay.tls_ca, relay.tls_cert and relay.tls_key for this", fault);
  }
  fault_ = std::move(fault);
}

}  // namespace plumbline::server
