#include "server/relay/relay.h"

#include <grpcpp/alarm.h>
#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "plumbline/v1/ingest.grpc.pb.h"
#include "server/access/gate.h"
#include "server/process/grpc_status.h"
#include "server/process/log.h"
#include "server/relay/stream_multiplexer.h"
#include "server/stream/sender.h"
#include "server/stream/wire.h"
#include "transport/diagnosis.h"

namespace plumbline::server {
namespace {

constexpr size_t kMostOutgoing = 1 << 20;   // bytes of answers to one process
constexpr int kLookahead = 1 << 20;         // bytes that gRPC receives ahead of its reads
constexpr size_t kMostUnreadAnswers = 256;  // answers; if more wait, the process's messages are not
                                            // read

// One agent's call. gRPC handles reads one after another; mutex_ guards everything else.
class RelaySession : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                     public Line,
                     public std::enable_shared_from_this<RelaySession> {
 public:
  RelaySession(std::shared_ptr<StreamMultiplexer> board, grpc::CallbackServerContext* context,
               std::shared_ptr<Lease> lease)
      : board_(std::move(board)), context_(context), lease_(std::move(lease)) {}

  static RelaySession* Start(const std::shared_ptr<StreamMultiplexer>& board,
                             grpc::CallbackServerContext* context, std::shared_ptr<Lease> lease,
                             std::chrono::system_clock::duration hello_within) {
    auto session = std::make_shared<RelaySession>(board, context, std::move(lease));
    session->self_ = session;
    session->WatchTheDoor(hello_within);
    session->StartRead(&session->incoming_);
    return session.get();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(grpc::Status::OK);  // half-closed, or broken
    const bool room = Forward();
    const MutexLock lock(mutex_);
    if (!room && !std::exchange(resumed_early_, false)) {
      paused_ = true;
      return;
    }
    ReadLocked();
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(mutex_);
    writing_ = false;
    PopLocked();
    while (!ok && !outgoing_.empty()) PopLocked();
    PumpLocked();
    if (outgoing_.size() <= kMostUnreadAnswers / 2 && std::exchange(unread_, false)) ReadLocked();
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }

  void OnDone() override {
    if (stream_id_ != 0) board_->Close(stream_id_, number_);
    self_.reset();
  }

  // Line:
  void Write(const grpc::ByteBuffer& message) override {
    const MutexLock lock(mutex_);
    if (ending_) return;
    outgoing_.push_back(message);
    outgoing_bytes_ += message.Length();
    PumpLocked();
    if (outgoing_bytes_ > kMostOutgoing) CutOffLocked();
  }
  void End(const grpc::Status& status) override {
    const MutexLock lock(mutex_);
    if (std::exchange(ending_, true)) return;
    status_ = status;
    PumpLocked();
  }
  void Resume() override {
    const MutexLock lock(mutex_);
    if (std::exchange(paused_, false)) {
      ReadLocked();
    } else {
      resumed_early_ = true;  // OnReadDone has not looked yet
    }
  }

 private:
  void WatchTheDoor(std::chrono::system_clock::duration hello_within) {
    const auto weak = weak_from_this();
    lease_->OnRevoked([weak](const absl::Status& why) {
      if (auto session = weak.lock()) session->End(ToGrpc(why));
    });
    hello_due_.Set(std::chrono::system_clock::now() + hello_within, [weak](bool ran_out) {
      auto session = ran_out ? weak.lock() : nullptr;
      if (session != nullptr && !session->greeted_) {
        session->End(
            {grpc::StatusCode::DEADLINE_EXCEEDED, "no hello in time (ingest.hello_seconds)"});
      }
    });
  }

  // Returns the runs of a hello. The upstream server checks the runs of its batches, by the
  // permissions of this relay.
  absl::Status CheckRuns(const v1::Hello& hello) const {
    for (const v1::Source& source : hello.sources()) {
      if (auto s = lease_->Check(Scope::kWrite, source.run()); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  // Returns false if there is no space upstream, or if the upstream server has not welcomed the
  // stream yet.
  bool Forward() {
    if (stream_id_ == 0) return Hello();
    const MessageHead head = HeadOf(incoming_);
    if (head.stream_id != stream_id_) {
      End({grpc::StatusCode::INVALID_ARGUMENT, "a message of a different stream than the hello"});
    } else if (head.member == v1::AgentMessage::kHelloFieldNumber) {
      End({grpc::StatusCode::FAILED_PRECONDITION, "a second hello on one stream"});
    } else {
      return board_->Send(stream_id_, shared_from_this(), incoming_);
    }
    return true;
  }

  bool Hello() {
    v1::AgentMessage message;
    grpc::ByteBuffer copy(incoming_);
    const bool parsed =
        grpc::SerializationTraits<v1::AgentMessage>::Deserialize(&copy, &message).ok();
    if (!parsed || !message.has_hello() || message.hello().stream_id() == 0) {
      End({grpc::StatusCode::FAILED_PRECONDITION, "the first message must be a hello"});
    } else if (message.hello().shared()) {
      End({grpc::StatusCode::FAILED_PRECONDITION,
           "expected an agent, found a relay, but this is a relay as well: set the address of a "
           "server in relay.upstream"});
    } else if (auto s = CheckRuns(message.hello()); !s.ok()) {
      End(ToGrpc(s));
    } else {
      greeted_ = true;
      stream_id_ = message.hello().stream_id();
      message.mutable_hello()->set_origin(ConnectionOf(context_->peer()));
      number_ = board_->Open(stream_id_, shared_from_this(), std::move(*message.mutable_hello()));
      return false;  // until it is welcomed
    }
    return true;
  }

  // If a process does not read its answers, its messages are not read either.
  void ReadLocked() PLUMB_REQUIRES(mutex_) {
    if (ending_) return;
    unread_ = outgoing_.size() >= kMostUnreadAnswers;
    if (!unread_) StartRead(&incoming_);
  }

  void PopLocked() PLUMB_REQUIRES(mutex_) {
    outgoing_bytes_ -= outgoing_.front().Length();
    outgoing_.pop_front();
  }

  // Ends the call without its answers: a status would wait for its turn after them.
  void CutOffLocked() PLUMB_REQUIRES(mutex_) {
    const uint64_t ended = ++board_->counters().unread;
    LogWarning(
        "stream {:016x} ended: its process does not read the answers, and {} bytes are pending ({} "
        "such streams so far)",
        stream_id_, outgoing_bytes_, ended);
    ending_ = true;
    status_ = {grpc::StatusCode::RESOURCE_EXHAUSTED, "the answers are not read"};
    while (outgoing_.size() > 1) {
      outgoing_bytes_ -= outgoing_.back().Length();
      outgoing_.pop_back();
    }
    context_->TryCancel();
  }

  // Does one operation at a time; ends the call when nothing is left to write.
  void PumpLocked() PLUMB_REQUIRES(mutex_) {
    if (writing_ || finished_) return;
    if (!outgoing_.empty()) {
      writing_ = true;
      StartWrite(&outgoing_.front());
    } else if (ending_) {
      finished_ = true;
      Finish(status_);
    }
  }

  const std::shared_ptr<StreamMultiplexer> board_;
  grpc::CallbackServerContext* const context_;
  const std::shared_ptr<Lease> lease_;
  std::shared_ptr<RelaySession> self_;  // until OnDone
  grpc::Alarm hello_due_;
  std::atomic<bool> greeted_{false};
  grpc::ByteBuffer incoming_;
  uint64_t stream_id_ = 0;  // 0: before the hello
  uint64_t number_ = 0;     // of this line

  Mutex mutex_;
  std::deque<grpc::ByteBuffer> outgoing_ PLUMB_GUARDED_BY(mutex_);  // the first is being written
  size_t outgoing_bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  bool unread_ PLUMB_GUARDED_BY(mutex_) = false;  // the message is not read before the answers are
                                                  // read
  bool paused_ PLUMB_GUARDED_BY(mutex_) = false;
  bool resumed_early_ PLUMB_GUARDED_BY(mutex_) = false;
  bool writing_ PLUMB_GUARDED_BY(mutex_) = false;
  bool ending_ PLUMB_GUARDED_BY(mutex_) = false;
  bool finished_ PLUMB_GUARDED_BY(mutex_) = false;
  grpc::Status status_ PLUMB_GUARDED_BY(mutex_);
};

class RelayService : public v1::Ingest::WithRawCallbackMethod_Stream<v1::Ingest::Service> {
 public:
  RelayService(std::shared_ptr<StreamMultiplexer> board, double hello_seconds)
      : board_(std::move(board)),
        hello_within_(std::chrono::milliseconds(static_cast<int64_t>(hello_seconds * 1000))) {}
  void SetGate(Gate* gate) { gate_ = gate; }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Stream(
      grpc::CallbackServerContext* context) override {
    return RelaySession::Start(board_, context, gate_->Enter(*context), hello_within_);
  }

 private:
  const std::shared_ptr<StreamMultiplexer> board_;
  const std::chrono::system_clock::duration hello_within_;
  Gate* gate_ = nullptr;
};

// Refuses each call that is not Ingest: only the upstream server has the runs.
class QueryAbove : public grpc::CallbackGenericService {
 public:
  explicit QueryAbove(std::string upstream) : upstream_(std::move(upstream)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    context->AddTrailingMetadata(transport::kRelayOf, upstream_);
    return new Refusal({grpc::StatusCode::FAILED_PRECONDITION,
                        absl::StrCat("this is a relay of ", upstream_,
                                     " and answers no queries: ask the server, with --server ",
                                     upstream_, " (PLUMBLINE_SERVER)")});
  }

 private:
  class Refusal : public grpc::ServerGenericBidiReactor {
   public:
    explicit Refusal(const grpc::Status& status) { Finish(status); }
    void OnDone() override { delete this; }
  };
  const std::string upstream_;
};

class RelayServer : public Server {
 public:
  explicit RelayServer(const Config& config)
      : board_(std::make_shared<StreamMultiplexer>(config.relay_upstream, CredentialsOf(config))),
        service_(board_, config.hello_seconds),
        query_above_(config.relay_upstream) {}
  ~RelayServer() override { Stop(); }

  absl::Status Listen(const Config& config) {
    // Reports an unusable configuration now, not at the first hello.
    transport::StreamConfig upstream;
    upstream.target = config.relay_upstream;
    upstream.credentials = CredentialsOf(config);
    if (auto channel = transport::MakeChannel(upstream); !channel.ok()) return channel.status();
    auto gate = Gate::Open(config, &counters_);
    if (!gate.ok()) return gate.status();
    gate_ = *std::move(gate);
    service_.SetGate(gate_.get());
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(config.grpc, gate_->ListenerCredentials(config.grpc), &port);
    SetLimits(config, &builder);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Limits what gRPC receives from a process whose messages are not read. Without a limit, gRPC
    // would take up to 5 MiB of each connection.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookahead);
    builder.RegisterService(&service_);
    builder.RegisterCallbackGenericService(&query_above_);
    grpc_ = builder.BuildAndStart();
    if (grpc_ == nullptr || port == 0) {
      grpc_ = nullptr;
      return absl::UnavailableError(absl::StrCat("cannot listen on ", config.grpc));
    }
    const bool socket = config.grpc.rfind("unix:", 0) == 0;
    address_ = socket ? config.grpc
                      : absl::StrCat(config.grpc.substr(0, config.grpc.rfind(':')), ":", port);
    return absl::OkStatus();
  }

  std::string grpc_address() const override { return address_; }
  std::string http_address() const override { return ""; }

  void Stop() override {
    if (grpc_ == nullptr) return;
    grpc_->GetHealthCheckService()->SetServingStatus(false);
    board_->Shutdown();
    grpc_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    grpc_.reset();
  }

 private:
  static transport::Credentials CredentialsOf(const Config& c) {
    return {c.relay_tls_ca, c.relay_tls_cert, c.relay_tls_key, c.relay_token_file};
  }

  Counters counters_;
  std::unique_ptr<Gate> gate_;
  const std::shared_ptr<StreamMultiplexer> board_;
  RelayService service_;
  QueryAbove query_above_;
  std::unique_ptr<grpc::Server> grpc_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> StartRelay(const Config& config) {
  if (auto s = ValidateConfig(config); !s.ok()) return s;
  auto relay = std::make_unique<RelayServer>(config);
  if (auto s = relay->Listen(config); !s.ok()) return s;
  return std::unique_ptr<Server>(std::move(relay));
}

}  // namespace plumbline::server
