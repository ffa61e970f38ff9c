#include "server/relay/relay.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plumbline/v1/ingest.grpc.pb.h"
#include "server/relay/switchboard.h"

namespace plumbline::server {
namespace {

// One agent's call. Reads are handled one after another by gRPC; the rest is guarded by mutex_.
class RelaySession : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                     public Line,
                     public std::enable_shared_from_this<RelaySession> {
 public:
  explicit RelaySession(std::shared_ptr<Switchboard> board) : board_(std::move(board)) {}

  static RelaySession* Start(const std::shared_ptr<Switchboard>& board) {
    auto session = std::make_shared<RelaySession>(board);
    session->self_ = session;
    session->StartRead(&session->incoming_);
    return session.get();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(grpc::Status::OK);  // half-closed, or broken
    const bool room = Forward();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!room && !std::exchange(resumed_early_, false)) {
      paused_ = true;
      return;
    }
    ReadLocked();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    outgoing_.pop_front();
    if (!ok) outgoing_.clear();
    PumpLocked();
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }

  void OnDone() override {
    if (stream_id_ != 0) board_->Close(stream_id_, this);
    self_.reset();
  }

  // Line:
  void Write(const grpc::ByteBuffer& message) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ending_) return;
    outgoing_.push_back(message);
    PumpLocked();
  }
  void End(const grpc::Status& status) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(ending_, true)) return;
    status_ = status;
    PumpLocked();
  }
  void Resume() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(paused_, false)) {
      ReadLocked();
    } else {
      resumed_early_ = true;  // OnReadDone has not looked yet
    }
  }

 private:
  // False: no room above.
  bool Forward() {
    if (stream_id_ == 0) return Hello();
    if (StreamIdOf(incoming_) != stream_id_) {
      End({grpc::StatusCode::INVALID_ARGUMENT, "a message of another stream than the hello's"});
      return true;
    }
    return board_->Send(stream_id_, shared_from_this(), incoming_);
  }

  bool Hello() {
    v1::AgentMessage message;
    grpc::ByteBuffer copy(incoming_);
    const bool parsed =
        grpc::SerializationTraits<v1::AgentMessage>::Deserialize(&copy, &message).ok();
    if (!parsed || !message.has_hello() || message.hello().stream_id() == 0) {
      End({grpc::StatusCode::FAILED_PRECONDITION, "the first message must be a hello"});
    } else if (message.hello().shared()) {
      End({grpc::StatusCode::FAILED_PRECONDITION, "a relay takes one stream a call"});
    } else {
      stream_id_ = message.hello().stream_id();
      board_->Open(stream_id_, shared_from_this(), std::move(*message.mutable_hello()));
    }
    return true;
  }

  void ReadLocked() {
    if (!ending_) StartRead(&incoming_);
  }

  // One operation at a time; the end when nothing is owed.
  void PumpLocked() {
    if (writing_ || finished_) return;
    if (!outgoing_.empty()) {
      writing_ = true;
      StartWrite(&outgoing_.front());
    } else if (ending_) {
      finished_ = true;
      Finish(status_);
    }
  }

  const std::shared_ptr<Switchboard> board_;
  std::shared_ptr<RelaySession> self_;  // until OnDone
  grpc::ByteBuffer incoming_;
  uint64_t stream_id_ = 0;  // 0: before the hello

  std::mutex mutex_;
  std::deque<grpc::ByteBuffer> outgoing_;  // the first is being written
  bool paused_ = false, resumed_early_ = false;
  bool writing_ = false, ending_ = false, finished_ = false;
  grpc::Status status_;
};

class RelayService : public v1::Ingest::WithRawCallbackMethod_Stream<v1::Ingest::Service> {
 public:
  explicit RelayService(std::shared_ptr<Switchboard> board) : board_(std::move(board)) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Stream(
      grpc::CallbackServerContext*) override {
    return RelaySession::Start(board_);
  }

 private:
  const std::shared_ptr<Switchboard> board_;
};

class RelayServer : public Server {
 public:
  explicit RelayServer(const std::string& upstream)
      : board_(std::make_shared<Switchboard>(upstream)), service_(board_) {}
  ~RelayServer() override { Stop(); }

  absl::Status Listen(const Config& config) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(config.grpc, grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(static_cast<int>(config.message_bytes));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(&service_);
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
    grpc_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    grpc_.reset();
  }

 private:
  const std::shared_ptr<Switchboard> board_;
  RelayService service_;
  std::unique_ptr<grpc::Server> grpc_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> StartRelay(const Config& config) {
  if (auto s = ValidateConfig(config); !s.ok()) return s;
  auto relay = std::make_unique<RelayServer>(config.relay_upstream);
  if (auto s = relay->Listen(config); !s.ok()) return s;
  return std::unique_ptr<Server>(std::move(relay));
}

}  // namespace plumbline::server
