#include "agent/core/server_stream.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "agent/core/batch_edit.h"
#include "plumbline/v1/ingest.grpc.pb.h"

namespace plumbline::agent {
namespace {

using Clock = GuestThread::Clock;
using std::chrono::milliseconds;

constexpr uint32_t kProtocol = 1;
// How long the thread sleeps for want of events: a batch waits at most this long to be sent.
constexpr milliseconds kBusyNap{50};
constexpr milliseconds kIdleNap{100};
constexpr milliseconds kIdleAfter{1000};
constexpr milliseconds kGoodbye{300};  // for the server to close its side

enum Tag : intptr_t { kStarted = 1, kRead, kWritten, kWritesDone, kFinished };
void* AsPointer(Tag tag) { return reinterpret_cast<void*>(static_cast<intptr_t>(tag)); }

void ReleaseBody(void* owner) { delete static_cast<std::shared_ptr<const std::string>*>(owner); }

// AgentMessage{batch} without parsing the body: field key, length, body, number.
grpc::ByteBuffer FrameBatch(std::shared_ptr<const std::string> body, const std::string& number) {
  using google::protobuf::io::CodedOutputStream;
  constexpr uint32_t kLengthDelimited = 2;
  uint8_t head[16];
  uint8_t* end = CodedOutputStream::WriteVarint32ToArray(
      (v1::AgentMessage::kBatchFieldNumber << 3) | kLengthDelimited, head);
  end = CodedOutputStream::WriteVarint64ToArray(body->size() + number.size(), end);

  auto* owner = new std::shared_ptr<const std::string>(std::move(body));
  grpc::Slice slices[3] = {
      grpc::Slice(head, static_cast<size_t>(end - head)),
      grpc::Slice(const_cast<char*>((*owner)->data()), (*owner)->size(), ReleaseBody, owner),
      grpc::Slice(number)};
  return grpc::ByteBuffer(slices, 3);
}

grpc::ByteBuffer Frame(const v1::AgentMessage& message) {
  grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

bool Parse(const grpc::ByteBuffer& buffer, v1::ServerMessage* message) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return false;
  std::string bytes;
  for (const grpc::Slice& s : slices)
    bytes.append(reinterpret_cast<const char*>(s.begin()), s.size());
  return message->ParseFromString(bytes);
}

std::shared_ptr<grpc::Channel> MakeChannel(const StreamConfig& config) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Our own backoff decides; the channel's must not be slower.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(config.backoff_first_ms));
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(config.backoff_first_ms));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, static_cast<int>(config.backoff_first_ms));
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetMaxSendMessageSize(-1);
  return grpc::CreateCustomChannel(config.target, grpc::InsecureChannelCredentials(), args);
}

std::string StreamMethod() {
  return std::string("/") + v1::Ingest::service_full_name() + "/Stream";
}

}  // namespace

// One call of Ingest.Stream, from dialling to its end. The stream thread's.
class ServerStream::Connection {
 public:
  Connection(ServerStream* owner, const std::shared_ptr<grpc::Channel>& channel)
      : owner_(*owner), stub_(channel) {}

  // Runs the call until it breaks or the owner wants it ended. True when the server welcomed us.
  bool Run() {
    const Clock::time_point now = Clock::now();
    last_ack_ = last_sent_ = last_event_ = now;
    call_ = stub_.PrepareCall(&context_, StreamMethod(), &events_);
    call_->StartCall(AsPointer(kStarted));
    while (!finished_) {
      WatchClock();
      if (!HandleNext()) SendNext();
    }
    events_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (events_.Next(&tag, &ok)) {
    }
    return welcomed_;
  }

 private:
  // Waits for one event; false when none came.
  bool HandleNext() {
    const Clock::time_point now = Clock::now();
    const bool idle = now - last_event_ > kIdleAfter && !owner_.finishing();
    const milliseconds nap = idle ? kIdleNap : kBusyNap;
    void* tag = nullptr;
    bool ok = false;
    const auto got = events_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + nap);
    if (got != grpc::CompletionQueue::GOT_EVENT) return false;
    Handle(static_cast<Tag>(reinterpret_cast<intptr_t>(tag)), ok);
    SendNext();
    return true;
  }

  void Handle(Tag tag, bool ok) {
    switch (tag) {
      case kStarted:
        if (!ok || broken_) return Break();
        SendHello();
        return Read();
      case kRead:
        reading_ = false;
        if (!ok || broken_) return Break();
        OnMessage();
        return broken_ ? Break() : Read();
      case kWritten:
        writing_ = false;
        if (!ok) Break();
        return;
      case kWritesDone:
        return;
      case kFinished:
        finished_ = true;
        return;
    }
  }

  void Read() {
    reading_ = true;
    call_->Read(&incoming_, AsPointer(kRead));
  }

  void Write(const grpc::ByteBuffer& buffer) {
    writing_ = true;
    last_sent_ = last_event_ = Clock::now();
    call_->Write(buffer, AsPointer(kWritten));
  }

  void SendHello() {
    v1::AgentMessage message;
    v1::Hello* hello = message.mutable_hello();
    hello->set_stream_id(owner_.config_.stream_id);
    hello->set_protocol(kProtocol);
    hello->set_tool_version(kToolVersion);
    *hello->add_sources() = owner_.config_.source;
    hello->set_next_sequence(owner_.outbox_->state().next_sequence);
    if (owner_.config_.series != nullptr) {
      for (v1::SeriesSet& set : owner_.config_.series->All())
        *hello->add_series_sets() = std::move(set);
    }
    Write(Frame(message));
  }

  void SendNext() {
    if (!welcomed_ || writing_ || broken_ || writes_done_) return;
    if (auto next = owner_.outbox_->TakeNext()) {
      if (in_flight_ == 0) last_ack_ = Clock::now();
      in_flight_ = next->sequence;
      owner_.counters_.batches_sent.fetch_add(1, std::memory_order_relaxed);
      owner_.counters_.bytes_sent.fetch_add(next->body->size(), std::memory_order_relaxed);
      const std::string number = BatchNumber(owner_.config_.stream_id, next->sequence);
      return Write(FrameBatch(std::move(next->body), number));
    }
    if (owner_.finishing() && owner_.outbox_->state().empty()) return SayGoodbye();
    if (Clock::now() - last_sent_ >= milliseconds(owner_.config_.heartbeat_ms)) SendHeartbeat();
  }

  void SendHeartbeat() {
    v1::AgentMessage message;
    v1::Heartbeat* beat = message.mutable_heartbeat();
    beat->set_stream_id(owner_.config_.stream_id);
    beat->set_newest_step(owner_.config_.newest_step ? owner_.config_.newest_step() : 0);
    beat->set_queued_batches(owner_.outbox_->state().batches);
    const Clock::time_point before = last_event_;
    Write(Frame(message));
    last_event_ = before;  // a heartbeat does not make the stream busy
  }

  void SayGoodbye() {
    writes_done_ = true;
    goodbye_ = Clock::now();
    call_->WritesDone(AsPointer(kWritesDone));
  }

  void OnMessage() {
    v1::ServerMessage message;
    if (!Parse(incoming_, &message)) return Break();
    last_ack_ = Clock::now();
    if (message.has_welcome()) return OnWelcome(message.welcome());
    if (message.has_ack()) OnAck(message.ack());
  }

  void OnWelcome(const v1::Welcome& welcome) {
    if (welcomed_) return;
    welcomed_ = true;
    owner_.counters_.connections.fetch_add(1, std::memory_order_relaxed);
    const bool forgot = owner_.outbox_->Restart(welcome.acknowledged());
    if (forgot && owner_.config_.server_forgot) owner_.config_.server_forgot();
  }

  void OnAck(const v1::Ack& ack) {
    for (const v1::Rejected& r : ack.rejected()) owner_.outbox_->Reject(r.sequence());
    owner_.outbox_->Acknowledge(ack.sequence());
    if (ack.sequence() >= in_flight_) in_flight_ = 0;
    last_event_ = last_ack_;
  }

  // Ends a call that has gone silent, or that the owner no longer wants.
  void WatchClock() {
    if (broken_) return;
    const Clock::time_point now = Clock::now();
    const bool waiting = !welcomed_ || in_flight_ != 0;
    const bool silent = waiting && now - last_ack_ > milliseconds(owner_.config_.ack_timeout_ms);
    const bool said_goodbye = writes_done_ && now - goodbye_ > kGoodbye;
    if (owner_.stopping() || silent || said_goodbye) Break();
  }

  // The call is over: cancels what is under way, and asks for its end once nothing is being read.
  void Break() {
    if (!broken_) {
      broken_ = true;
      context_.TryCancel();
    }
    if (finish_asked_ || reading_) return;  // the cancelled read comes back and calls again
    finish_asked_ = true;
    call_->Finish(&status_, AsPointer(kFinished));
  }

  ServerStream& owner_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue events_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer incoming_;
  grpc::Status status_;
  bool welcomed_ = false, reading_ = false, writing_ = false;
  bool writes_done_ = false, broken_ = false, finish_asked_ = false, finished_ = false;
  uint64_t in_flight_ = 0;  // the highest sequence sent and not acknowledged
  Clock::time_point last_ack_, last_sent_, last_event_, goodbye_;
};

ServerStream::ServerStream(StreamConfig config, std::shared_ptr<Outbox> outbox)
    : config_(std::move(config)), outbox_(std::move(outbox)) {}

bool ServerStream::Start() {
  return thread_.Start("plumb-stream", [self = shared_from_this()] { self->Loop(); });
}

bool ServerStream::Finish(Clock::time_point deadline) {
  finish_.store(true, std::memory_order_release);
  thread_.WaitEnded(deadline);
  stop_.store(true, std::memory_order_release);
  thread_.WaitEnded(Clock::now() + milliseconds(500));
  return outbox_->state().empty();
}

bool ServerStream::Wanted() const {
  return !stopping() && !(finishing() && outbox_->state().empty());
}

// Between two attempts. When the end is near the next attempt is made at once, the first time.
void ServerStream::WaitBefore(Clock::time_point again) {
  const bool was_finishing = finishing();
  while (Clock::now() < again && Wanted()) {
    if (finishing() && !was_finishing) return;
    std::this_thread::sleep_for(milliseconds(20));
  }
}

void ServerStream::Loop() {
  // Debian's Abseil looks for lock cycles at every lock: 41 % of gRPC's CPU time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(config_);
  uint32_t backoff_ms = config_.backoff_first_ms;
  while (Wanted()) {
    if (Connection(this, channel).Run()) backoff_ms = config_.backoff_first_ms;
    WaitBefore(Clock::now() + milliseconds(backoff_ms));
    backoff_ms = std::min(backoff_ms * 2, config_.backoff_last_ms);
  }
}

}  // namespace plumbline::agent
