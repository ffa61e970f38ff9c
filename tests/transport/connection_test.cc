// A call that the other side seems to have ended: the connection waits a second for its status, and
// then cancels the call. The server here is silent, or ends the call when the test requests it.
#include "transport/connection.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "plumbline/v1/ingest.grpc.pb.h"
#include "transport/outbox.h"

namespace plumbline::transport {
namespace {

using Clock = Connection::Clock;
using std::chrono::milliseconds;

// Reads and writes nothing until End.
class SilentServer : public v1::Ingest::CallbackService {
 public:
  SilentServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~SilentServer() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  grpc::ServerBidiReactor<v1::AgentMessage, v1::ServerMessage>* Stream(
      grpc::CallbackServerContext*) override {
    class Call final : public grpc::ServerBidiReactor<v1::AgentMessage, v1::ServerMessage> {
     public:
      void OnDone() override { delete this; }
      void OnCancel() override { End(grpc::Status::CANCELLED); }
      void End(const grpc::Status& status) {
        if (!ended_.exchange(true)) Finish(status);
      }

     private:
      std::atomic<bool> ended_{false};
    };
    auto* const call = new Call;
    const MutexLock lock(mutex_);
    end_ = [call](const grpc::Status& status) { call->End(status); };
    return call;
  }
  void End(const grpc::Status& status) {
    const MutexLock lock(mutex_);
    end_(status);
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  std::function<void(const grpc::Status&)> end_ PLUMB_GUARDED_BY(mutex_);
};

class EndedCall : public testing::Test {
 protected:
  ~EndedCall() override {
    events_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (events_.Next(&tag, &ok)) Connection::Dispatch(tag, ok);
  }

  void SetUp() override {
    config_.target = server_.address();
    config_.stream_id = 7;
    auto channel = MakeChannel(config_);
    ASSERT_TRUE(channel.ok()) << channel.status();
    connection_ = std::make_unique<Connection>(config_, &outbox_, &counters_, *channel, &events_);
    connection_->Start();
    Handle(true);   // the call has begun
    Handle(false);  // its hello was not written: the other side seems to have ended the call
    broke_ = Clock::now();
    ASSERT_FALSE(connection_->finished());
  }
  // Handles the next event, unchanged or as a failed one.
  void Handle(bool as_it_is) {
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(events_.Next(&tag, &ok));
    Connection::Dispatch(tag, ok && as_it_is);
  }
  // Ticks as a sender does, until the call is over. Returns how long that took; at most `most`.
  milliseconds UntilFinished(milliseconds most) {
    while (!connection_->finished() && Clock::now() - broke_ < most) {
      connection_->Tick();
      void* tag = nullptr;
      bool ok = false;
      const auto until = std::chrono::system_clock::now() + milliseconds(20);
      if (events_.AsyncNext(&tag, &ok, until) == grpc::CompletionQueue::GOT_EVENT)
        Connection::Dispatch(tag, ok);
    }
    return std::chrono::duration_cast<milliseconds>(Clock::now() - broke_);
  }

  SilentServer server_;
  StreamConfig config_;
  Outbox outbox_{OutboxLimits()};
  StreamCounters counters_;
  grpc::CompletionQueue events_;
  std::unique_ptr<Connection> connection_;
  Clock::time_point broke_;
};

TEST_F(EndedCall, ThatGetsNoStatusIsCancelledAfterASecond) {
  UntilFinished(milliseconds(900));
  EXPECT_FALSE(connection_->finished()) << "a status may still come";
  const milliseconds took = UntilFinished(milliseconds(10'000));
  ASSERT_TRUE(connection_->finished());
  EXPECT_GE(took, milliseconds(1000));
  EXPECT_LT(took, milliseconds(5000));
  EXPECT_EQ(connection_->status().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(EndedCall, ThatGetsItsStatusInTimeKeepsIt) {
  UntilFinished(milliseconds(500));
  ASSERT_FALSE(connection_->finished());
  server_.End({grpc::StatusCode::RESOURCE_EXHAUSTED, "no more runs"});
  EXPECT_LT(UntilFinished(milliseconds(950)), milliseconds(950));
  ASSERT_TRUE(connection_->finished());
  EXPECT_EQ(connection_->status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(connection_->status().error_message(), "no more runs");
}

}  // namespace
}  // namespace plumbline::transport
