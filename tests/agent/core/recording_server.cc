#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "plumbline/v1/ingest.grpc.pb.h"
#include "tests/agent/core/support.h"
#include "tests/support/eventually.h"

namespace plumbline::agent::testing {

struct RecordingServer::State {
  ServerBehaviour behaviour;
  int port = 0;
  std::unique_ptr<Service> service;
  std::unique_ptr<grpc::Server> server;

  mutable std::mutex mutex;
  std::map<uint64_t, std::map<uint64_t, v1::Batch>> streams;  // stream id, sequence
  std::map<uint64_t, uint64_t> acknowledged;
  std::map<uint64_t, v1::Hello> hello;  // the newest for each stream
  uint64_t duplicates = 0;
  uint64_t heartbeats = 0;
  v1::Heartbeat heartbeat;
  uint64_t hellos = 0;
  std::string capsule;
};

class RecordingServer::Service : public v1::Ingest::Service {
 public:
  explicit Service(State* state) : state_(*state) {}

  grpc::Status Stream(grpc::ServerContext*,
                      grpc::ServerReaderWriter<v1::ServerMessage, v1::AgentMessage>* io) override {
    v1::AgentMessage message;
    uint64_t since_ack = 0, newest = 0, stream = 0;
    v1::ServerMessage reply;
    while (io->Read(&message)) {
      if (message.has_hello()) {
        stream = message.hello().stream_id();
        reply.mutable_welcome()->set_protocol(1);
        reply.mutable_welcome()->set_acknowledged(Welcome(message.hello()));
        io->Write(reply);
        reply.Clear();
        if (state_.behaviour.directive.ByteSizeLong() > 0) {
          *reply.mutable_directive() = state_.behaviour.directive;
          io->Write(reply);
          reply.Clear();
        }
        continue;
      }
      if (message.has_capsule()) {
        const std::lock_guard<std::mutex> lock(state_.mutex);
        state_.capsule += message.capsule().data();
        continue;
      }
      if (message.has_heartbeat()) {
        const std::lock_guard<std::mutex> lock(state_.mutex);
        ++state_.heartbeats;
        state_.heartbeat = message.heartbeat();
        continue;
      }
      newest = message.batch().sequence();
      const bool refused = Store(stream, message.batch(), &reply);
      if (!state_.behaviour.ack) continue;
      if (++since_ack < state_.behaviour.ack_every && !refused && !FinishedBatch(message.batch())) {
        continue;
      }
      since_ack = 0;
      reply.mutable_ack()->set_sequence(newest);
      {
        const std::lock_guard<std::mutex> lock(state_.mutex);
        state_.acknowledged[stream] = std::max(state_.acknowledged[stream], newest);
      }
      io->Write(reply);
      reply.Clear();
    }
    return grpc::Status::OK;
  }

 private:
  static bool FinishedBatch(const v1::Batch& batch) {
    for (const v1::Progress& p : batch.progress()) {
      if (p.finished()) return true;
    }
    return false;
  }

  uint64_t Welcome(const v1::Hello& hello) {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    const uint64_t stream = hello.stream_id();
    state_.hello[stream] = hello;
    ++state_.hellos;
    // Returns all contiguous batches from the first one that the server still holds or had
    // acknowledged.
    uint64_t held = state_.acknowledged[stream];
    const auto& batches = state_.streams[stream];
    while (batches.count(held + 1) != 0) ++held;
    return held;
  }

  bool Store(uint64_t stream, const v1::Batch& batch, v1::ServerMessage* reply) {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    EXPECT_EQ(batch.stream_id(), stream);
    EXPECT_EQ(batch.sources_size(), 1);
    if (state_.behaviour.refuse && state_.behaviour.refuse(batch)) {
      v1::Rejected* r = reply->mutable_ack()->add_rejected();
      r->set_sequence(batch.sequence());
      r->set_reason("refused by the test");
      v1::Batch empty;  // reserves its place
      empty.set_stream_id(stream);
      empty.set_sequence(batch.sequence());
      state_.streams[stream].emplace(batch.sequence(), empty);
      return true;
    }
    if (!state_.streams[stream].emplace(batch.sequence(), batch).second) ++state_.duplicates;
    return false;
  }

  State& state_;
};

RecordingServer::RecordingServer(ServerBehaviour behaviour) : state_(std::make_unique<State>()) {
  state_->behaviour = std::move(behaviour);
  state_->service = std::make_unique<Service>(state_.get());
  Start();
}

RecordingServer::~RecordingServer() {
  if (state_->server != nullptr) Kill(true);
}

std::string RecordingServer::target() const { return "127.0.0.1:" + std::to_string(state_->port); }

void RecordingServer::Start() {
  // After a kill the port may need a moment to be free again.
  for (int attempt = 0; attempt < 100 && state_->server == nullptr; ++attempt) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(target(), grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(64 << 20);
    builder.RegisterService(state_->service.get());
    state_->server = builder.BuildAndStart();
    if (state_->server != nullptr && port == 0) state_->server.reset();
    if (state_->server != nullptr) state_->port = port;
    if (state_->server == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ASSERT_NE(state_->server, nullptr) << "no server on " << target();
}

void RecordingServer::Kill(bool keep_unacknowledged) {
  state_->server->Shutdown(std::chrono::system_clock::now());
  state_->server->Wait();
  state_->server.reset();
  if (keep_unacknowledged) return;
  const std::lock_guard<std::mutex> lock(state_->mutex);
  for (auto& [stream, batches] : state_->streams) {
    batches.erase(batches.upper_bound(state_->acknowledged[stream]), batches.end());
  }
}

void RecordingServer::ForgetEverything() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->streams.clear();
  state_->acknowledged.clear();
}

std::vector<v1::Batch> RecordingServer::Batches() const {
  const auto streams = Streams();
  EXPECT_LE(streams.size(), 1u);
  return streams.empty() ? std::vector<v1::Batch>() : streams.begin()->second;
}

namespace {

// Sets that no stored batch declares: the declaring batch was forgotten, and the hello listed them.
void AddSets(const v1::Hello& hello, std::vector<v1::Batch>* batches) {
  for (const v1::SeriesSet& set : hello.series_sets()) {
    const auto declares = [&](const v1::Batch& b) {
      return std::any_of(b.series_sets().begin(), b.series_sets().end(),
                         [&](const v1::SeriesSet& s) { return s.id() == set.id(); });
    };
    if (std::none_of(batches->begin(), batches->end(), declares)) {
      *batches->front().add_series_sets() = set;
    }
  }
}

}  // namespace

std::map<uint64_t, std::vector<v1::Batch>> RecordingServer::Streams() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  std::map<uint64_t, std::vector<v1::Batch>> out;
  for (const auto& [stream, batches] : state_->streams) {
    std::vector<v1::Batch>& list = out[stream];
    for (const auto& [sequence, batch] : batches) {
      if (!list.empty()) {
        EXPECT_EQ(sequence, list.back().sequence() + 1) << "a gap in the sequence";
      }
      list.push_back(batch);
    }
  }
  for (auto& [stream, list] : out) {
    if (!list.empty()) AddSets(state_->hello[stream], &list);
    RowsToEvidence(&list);
  }
  return out;
}

uint64_t RecordingServer::duplicates() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->duplicates;
}

uint64_t RecordingServer::heartbeats() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->heartbeats;
}

v1::Heartbeat RecordingServer::heartbeat() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->heartbeat;
}

uint64_t RecordingServer::hellos() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->hellos;
}

std::string RecordingServer::capsule() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->capsule;
}

bool RecordingServer::WaitFor(const std::function<bool(const Account&)>& condition) const {
  return test::Eventually([&] { return condition(AccountOf(Batches())); });
}

}  // namespace plumbline::agent::testing
