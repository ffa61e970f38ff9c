#include "server/relay/stream_multiplexer.h"

#include <grpcpp/generic/generic_stub.h>

#include <deque>
#include <utility>

#include "server/process/log.h"
#include "transport/diagnosis.h"
#include "transport/wire.h"

namespace plumbline::server {
namespace {

constexpr size_t kMuch = 32u << 20;  // bytes on their way up; reading stops above
constexpr size_t kLittle = kMuch / 2;
constexpr std::chrono::milliseconds kLook{200};

}  // namespace

// One call to the server above. Keeps itself until it is over.
class StreamMultiplexer::Upstream
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Upstream(std::shared_ptr<StreamMultiplexer> board, const std::shared_ptr<grpc::Channel>& channel)
      : board_(std::move(board)), stub_(channel) {}

  void Begin(std::shared_ptr<Upstream> self) {
    self_ = std::move(self);
    stub_.PrepareBidiStreamingCall(&context_, transport::StreamMethod(), {}, this);
    AddHold();  // writes come from other threads
    StartRead(&incoming_);
    StartCall();
  }

  // False: much is waiting.
  bool Send(const grpc::ByteBuffer& message) {
    const MutexLock lock(mutex_);
    if (closed_) return true;  // the end of the call tells everybody
    bytes_ += message.Length();
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
    LetGoLocked();
  }

  void OnWriteDone(bool ok) override {
    bool room = false;
    {
      const MutexLock lock(mutex_);
      writing_ = false;
      const size_t before = bytes_;
      bytes_ -= queue_.front().Length();
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

// Somebody must poll the channel between two calls, or a server that is back is found by gRPC's own
// look each 5 s (transport/dialer.h).
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

// Null, and why: our credentials cannot be used. They are read anew for each call.
std::shared_ptr<StreamMultiplexer::Upstream> StreamMultiplexer::CallLocked(grpc::Status* why) {
  if (upstream_ == nullptr) {
    if (channel_ == nullptr || config_.credentials.any()) {
      auto channel = transport::MakeChannel(config_);
      if (!channel.ok()) {
        const std::string text(channel.status().message());
        LogError("relay: {}", text);
        *why = {grpc::StatusCode::UNAVAILABLE, "the relay cannot prove who it is: " + text};
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

void StreamMultiplexer::Open(uint64_t stream_id, const std::shared_ptr<Line>& line,
                             v1::Hello hello) {
  std::shared_ptr<Line> older;
  std::shared_ptr<Upstream> upstream;
  grpc::Status why(grpc::StatusCode::UNAVAILABLE, "the relay is shutting down");
  {
    const MutexLock lock(mutex_);
    if (!shut_) upstream = CallLocked(&why);
    if (upstream != nullptr) older = std::exchange(lines_[stream_id], line);
  }
  if (upstream == nullptr) return line->End(why);
  if (older != nullptr && older != line) {
    older->End({grpc::StatusCode::ABORTED, "this stream was opened again elsewhere"});
  }
  v1::AgentMessage message;
  *message.mutable_hello() = std::move(hello);
  message.mutable_hello()->set_shared(true);
  ++counters_.forwarded;
  upstream->Send(transport::Frame(message));
}

bool StreamMultiplexer::Send(uint64_t stream_id, const std::shared_ptr<Line>& line,
                             const grpc::ByteBuffer& message) {
  std::shared_ptr<Upstream> upstream;
  {
    const MutexLock lock(mutex_);
    const auto found = lines_.find(stream_id);
    if (found == lines_.end() || found->second != line) return true;  // it is being ended
    upstream = upstream_;
  }
  if (upstream == nullptr) return true;
  ++counters_.forwarded;
  if (upstream->Send(message)) return true;
  const MutexLock lock(mutex_);
  waiting_.push_back(line);
  return false;
}

void StreamMultiplexer::Close(uint64_t stream_id, const Line* line) {
  std::shared_ptr<Upstream> upstream;
  {
    const MutexLock lock(mutex_);
    const auto found = lines_.find(stream_id);
    if (found == lines_.end() || found->second.get() != line) return;
    lines_.erase(found);
    upstream = upstream_;
  }
  if (upstream == nullptr) return;
  v1::AgentMessage message;
  message.mutable_goodbye()->set_stream_id(stream_id);
  upstream->Send(transport::Frame(message));
}

void StreamMultiplexer::Shutdown() {
  std::unordered_map<uint64_t, std::shared_ptr<Line>> lines;
  std::shared_ptr<Upstream> upstream;
  {
    const MutexLock lock(mutex_);
    shut_ = true;
    lines.swap(lines_);
    waiting_.clear();
    upstream = upstream_;
  }
  for (const auto& [id, line] : lines) {
    line->End({grpc::StatusCode::UNAVAILABLE, "the relay is shutting down"});
  }
  if (upstream != nullptr) upstream->Cancel();
}

std::shared_ptr<Line> StreamMultiplexer::Find(uint64_t stream_id) {
  const MutexLock lock(mutex_);
  const auto found = lines_.find(stream_id);
  return found == lines_.end() ? nullptr : found->second;
}

void StreamMultiplexer::OnMessage(const Upstream* from, const grpc::ByteBuffer& buffer) {
  v1::ServerMessage message;
  if (!transport::Parse(buffer, &message)) return;
  const uint64_t id = message.has_welcome() ? message.welcome().stream_id()
                      : message.has_ack()   ? message.ack().stream_id()
                                            : message.directive().stream_id();
  if (id == 0) {
    LogError("{} takes one stream a call: it is older than this relay", target_);
    return OnEnded(from, {grpc::StatusCode::UNIMPLEMENTED,
                          "the server above takes one stream a call; connect to it directly"});
  }
  const std::shared_ptr<Line> line = Find(id);
  if (line == nullptr) {
    ++counters_.unrouted;
    return;
  }
  if (message.has_ack() && !message.ack().ended().empty()) {
    return line->End(
        {static_cast<grpc::StatusCode>(message.ack().ended_code()), message.ack().ended()});
  }
  line->Write(buffer);
}

void StreamMultiplexer::OnRoom(const Upstream* from) {
  std::vector<std::shared_ptr<Line>> waiting;
  {
    const MutexLock lock(mutex_);
    if (upstream_.get() == from) waiting.swap(waiting_);
  }
  for (const auto& line : waiting) line->Resume();
}

// Agents keep what is not acknowledged and come back.
void StreamMultiplexer::OnEnded(const Upstream* from, const grpc::Status& status) {
  std::unordered_map<uint64_t, std::shared_ptr<Line>> lines;
  std::shared_ptr<Upstream> over;
  {
    const MutexLock lock(mutex_);
    if (upstream_.get() != from) return;
    over = std::exchange(upstream_, nullptr);
    lines.swap(lines_);
    waiting_.clear();
    if (!shut_ && !lines.empty()) {
      LogWarning("{}: {}; {} streams wait", target_,
                 status.ok() ? "ended the call" : transport::TextOf(status), lines.size());
    }
  }
  over->Cancel();
  const bool told = !status.ok() && status.error_code() != grpc::StatusCode::CANCELLED;
  const grpc::Status reason =
      told ? status : grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server above is gone");
  for (const auto& [id, line] : lines) line->End(reason);
}

}  // namespace plumbline::server
