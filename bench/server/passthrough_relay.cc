// bench_passthrough_relay: the peer of plumbd as a relay. Each agent's call becomes one call to the
// server above, all over one HTTP/2 channel. Messages pass unread, one at a time in each direction.
//
//   bench_passthrough_relay UPSTREAM PORT_FILE
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>

namespace plumbline::bench {
namespace {

class Upward;

// An agent's call. Both ends share its ownership until each is done.
class Downward : public grpc::ServerGenericBidiReactor {
 public:
  void Begin(std::shared_ptr<Downward> self, std::shared_ptr<Upward> up);
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void ReadNext() { StartRead(&incoming_); }
  void Forward(const grpc::ByteBuffer& message) {
    outgoing_ = message;
    StartWrite(&outgoing_);
  }
  void End(const grpc::Status& status) { Finish(status); }

 private:
  std::shared_ptr<Downward> self_;
  std::shared_ptr<Upward> up_;
  grpc::ByteBuffer incoming_, outgoing_;
};

// The call to the server above.
class Upward : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Upward(grpc::GenericStub* stub, std::shared_ptr<Downward> down) : down_(std::move(down)) {
    stub->PrepareBidiStreamingCall(&context_, "/plumbline.v1.Ingest/Stream", {}, this);
  }
  void Begin(std::shared_ptr<Upward> self) {
    self_ = std::move(self);
    AddHold();  // for writes of the other end
    StartRead(&incoming_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (ok) down_->Forward(incoming_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) down_->ReadNext();
  }
  void OnDone(const grpc::Status& status) override {
    down_->End(status);
    self_.reset();
  }

  void ReadNext() { StartRead(&incoming_); }
  void Forward(const grpc::ByteBuffer& message) {
    outgoing_ = message;
    StartWrite(&outgoing_);
  }
  // Ends the writes: the agent has sent everything, or is gone.
  void LetGo(bool cancel) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (cancel) context_.TryCancel();
    if (std::exchange(let_go_, true)) return;
    if (!cancel) StartWritesDone();
    RemoveHold();
  }

 private:
  std::shared_ptr<Upward> self_;
  const std::shared_ptr<Downward> down_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_, outgoing_;
  std::mutex mutex_;
  bool let_go_ = false;
};

void Downward::Begin(std::shared_ptr<Downward> self, std::shared_ptr<Upward> up) {
  self_ = std::move(self);
  up_ = std::move(up);
  up_->Begin(up_);
  StartRead(&incoming_);
}
void Downward::OnReadDone(bool ok) { ok ? up_->Forward(incoming_) : up_->LetGo(false); }
void Downward::OnWriteDone(bool ok) { ok ? up_->ReadNext() : up_->LetGo(true); }
void Downward::OnCancel() { up_->LetGo(true); }
void Downward::OnDone() {
  up_->LetGo(true);
  self_.reset();
}

class Service : public grpc::CallbackGenericService {
 public:
  explicit Service(const std::string& upstream)
      : stub_(grpc::CreateChannel(upstream, grpc::InsecureChannelCredentials())) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    auto down = std::make_shared<Downward>();
    down->Begin(down, std::make_shared<Upward>(&stub_, down));
    return down.get();
  }

 private:
  grpc::GenericStub stub_;
};

int Main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s UPSTREAM PORT_FILE\n", argv[0]);
    return 2;
  }
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  Service service(argv[1]);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterCallbackGenericService(&service);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::ofstream(argv[2]) << "127.0.0.1:" << port << "\n";
  int signal = 0;
  sigwait(&ends, &signal);
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

}  // namespace
}  // namespace plumbline::bench

int main(int argc, char** argv) { return plumbline::bench::Main(argc, argv); }
