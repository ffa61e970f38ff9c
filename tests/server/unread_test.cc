// Peers that send and never read, at a server and at a relay: their queued answers are limited, and
// a peer that reads slowly gets all of its answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/server/http_support.h"
#include "tests/server/support.h"

namespace plumbline::test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kStream = 7;
constexpr int64_t kMostGrowthMiB = 64;

int64_t ResidentMiB(const Process& process) {
  std::istringstream status(ReadFile("/proc/" + std::to_string(process.pid()) + "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::stoll(line.substr(6)) / 1024;
  }
  return 0;
}

v1::AgentMessage Hello(const v1::Source& source, uint64_t stream) {
  v1::AgentMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_stream_id(stream);
  hello.set_protocol(1);
  hello.set_next_sequence(1);
  *hello.add_sources() = source;
  return message;
}

// Returns a batch that is refused by its number: its source does not exist.
v1::AgentMessage Refused(const v1::Source& source, uint64_t stream, uint64_t sequence) {
  v1::AgentMessage message;
  *message.mutable_batch() = ScalarStep(source, 0);
  message.mutable_batch()->mutable_evidence(0)->set_source(99);
  message.mutable_batch()->set_stream_id(stream);
  message.mutable_batch()->set_sequence(sequence);
  return message;
}

// Returns a channel that receives at most 64 KiB of unread data.
std::shared_ptr<grpc::Channel> SmallChannel(const Plumbd& server) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return grpc::CreateCustomChannel(server.address(), grpc::InsecureChannelCredentials(), arguments);
}

// One call whose answers only the test reads.
class Peer {
 public:
  explicit Peer(const Plumbd& server, uint64_t stream = kStream)
      : stream_(stream),
        source_(SourceOf("unread-" + std::to_string(stream))),
        stub_(v1::Ingest::NewStub(SmallChannel(server))) {
    context_.set_deadline(std::chrono::system_clock::now() + 2 * kPatience);
    call_ = stub_->Stream(&context_);
    call_->Write(Hello(source_, stream_));
  }
  ~Peer() {
    context_.TryCancel();
    if (writer_.joinable()) writer_.join();
    v1::ServerMessage message;
    while (call_->Read(&message)) {
    }
    call_->Finish();
  }

  // Sends up to `most` refused batches. Does not wait for the end.
  void SendRefused(uint64_t most) {
    writer_ = std::thread([this, most] {
      while (!stop_ && sent_ < most && call_->Write(Refused(source_, stream_, sent_ + 1))) ++sent_;
      done_ = true;
    });
  }
  bool Read(v1::ServerMessage* message) { return call_->Read(message); }
  void Cancel() { context_.TryCancel(); }
  void StopSending() { stop_ = true; }
  uint64_t sent() const { return sent_; }
  bool done() const { return done_; }
  // Waits until nothing has been sent for two seconds, all has been sent, or `process` has grown by
  // more than twice the limit from `before` MiB. Returns its growth.
  int64_t GrowthOf(const Process& process, int64_t before) const {
    int64_t growth = 0;
    uint64_t sent = sent_;
    for (auto since = Clock::now(); !done_ && Clock::now() - since < milliseconds(2000);) {
      std::this_thread::sleep_for(milliseconds(20));
      growth = std::max(growth, ResidentMiB(process) - before);
      if (growth > 2 * kMostGrowthMiB) break;
      if (sent_ != sent) since = Clock::now();
      sent = sent_;
    }
    return growth;
  }

 private:
  const uint64_t stream_;
  const v1::Source source_;
  grpc::ClientContext context_;
  std::unique_ptr<v1::Ingest::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::ServerMessage>> call_;
  std::atomic<uint64_t> sent_{0};
  std::atomic<bool> stop_{false}, done_{false};
  std::thread writer_;
};

// Checks that other clients are served meanwhile.
void ExpectServed(const Plumbd& door) {
  AgentStream other(door, 900, {SourceOf("other")});
  ASSERT_TRUE(other.Send(ScalarStep(SourceOf("other"), 0), 1));
  EXPECT_TRUE(other.Acknowledged(1));
}

constexpr uint64_t kFlood = 3'000'000;  // more than gRPC's windows hold

TEST(Unread, AServerHoldsLittleForAPeerThatNeverReads) {
  Plumbd server;
  ASSERT_FALSE(server.address().empty()) << server.process().errors();
  ExpectServed(server);
  const int64_t before = ResidentMiB(server.process());
  Peer peer(server);
  peer.SendRefused(kFlood);
  const int64_t growth = peer.GrowthOf(server.process(), before);
  std::printf("%llu batches were sent, the server grew by %lld MiB\n",
              static_cast<unsigned long long>(peer.sent()), static_cast<long long>(growth));
  EXPECT_LE(growth, kMostGrowthMiB);
  EXPECT_LT(peer.sent(), kFlood) << "expected a peer that is not read any more";
  ExpectServed(server);
}

TEST(Unread, ARelayHoldsLittleForAPeerThatNeverReads) {
  Plumbd server;
  Plumbd relay({"--relay", server.address()});
  ASSERT_FALSE(relay.address().empty()) << relay.process().errors();
  ExpectServed(relay);
  const int64_t before = ResidentMiB(relay.process());
  const int64_t server_before = ResidentMiB(server.process());
  Peer peer(relay);
  peer.SendRefused(kFlood);
  const int64_t growth = peer.GrowthOf(relay.process(), before);
  const int64_t server_growth = ResidentMiB(server.process()) - server_before;
  std::printf("%llu batches were sent, the relay grew by %lld MiB, the server by %lld\n",
              static_cast<unsigned long long>(peer.sent()), static_cast<long long>(growth),
              static_cast<long long>(server_growth));
  EXPECT_LE(growth, kMostGrowthMiB);
  EXPECT_LE(server_growth, kMostGrowthMiB);
  EXPECT_LT(peer.sent(), kFlood);
  ExpectServed(relay);
}

// PLUMB_LONG: the memory of a relay for many such peers does not rise for a minute and a half.
TEST(Unread, ARelayHoldsLittleForManyPeersThatNeverRead) {
  if (std::getenv("PLUMB_LONG") == nullptr) GTEST_SKIP() << "minutes long: PLUMB_LONG=1";
  constexpr int kPeers = 60;
  Plumbd server;
  Plumbd relay({"--relay", server.address()});
  ASSERT_FALSE(relay.address().empty()) << relay.process().errors();
  ExpectServed(relay);
  const int64_t before = ResidentMiB(relay.process()),
                server_before = ResidentMiB(server.process());
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < kPeers; ++i) {
    peers.push_back(std::make_unique<Peer>(relay, kStream + 1000 + static_cast<uint64_t>(i)));
    peers.back()->SendRefused(kFlood);
  }
  int64_t growth = 0, at_half = 0;
  for (int second = 1; second <= 90; ++second) {
    std::this_thread::sleep_for(milliseconds(1000));
    growth = ResidentMiB(relay.process()) - before;
    if (second == 45) at_half = growth;
    if (second % 10 != 0) continue;
    uint64_t sent = 0;
    for (const auto& peer : peers) sent += peer->sent();
    std::printf("%d s: %llu batches were sent, the relay grew by %lld MiB, the server by %lld\n",
                second, static_cast<unsigned long long>(sent), static_cast<long long>(growth),
                static_cast<long long>(ResidentMiB(server.process()) - server_before));
    std::fflush(stdout);
  }
  EXPECT_LE(growth, at_half + 8);
  EXPECT_LE(growth, kPeers * 4);
  ExpectServed(relay);
  for (auto& peer : peers) peer->StopSending();
}

// A peer reads its answers, but the journal cannot write its refusals. Refusals on the way to the
// journal are limited too, and arrive when the disk has space again.
TEST(Unread, RefusalsWaitForAFullDisk) {
  TempFolder folder;
  const std::string fault = folder.Write("fault", "none 0");
  const auto set_fault = [&](const std::string& disk) {
    folder.Write("fault.new", disk + " 0");
    std::filesystem::rename(folder.File("fault.new"), fault);
  };
  Plumbd server({"--data", folder.File("data")},
                {"ASAN_OPTIONS=verify_asan_link_order=0",
                 std::string("LD_PRELOAD=") + PLUMB_FAULT_LIBRARY, "PLUMB_FAULT_FILE=" + fault});
  ASSERT_FALSE(server.address().empty()) << server.process().errors();
  ExpectServed(server);
  const int64_t before = ResidentMiB(server.process());
  Peer peer(server);
  std::atomic<uint64_t> refused{0};
  std::atomic<bool> in_order{true};
  std::thread reader([&] {
    v1::ServerMessage message;
    while (peer.Read(&message)) {
      for (const v1::Rejected& rejected : message.ack().rejected())
        in_order = in_order && rejected.sequence() == ++refused;
    }
  });
  set_fault("full");
  peer.SendRefused(kFlood);
  const int64_t growth = peer.GrowthOf(server.process(), before);
  std::printf("%llu batches were sent, the server grew by %lld MiB\n",
              static_cast<unsigned long long>(peer.sent()), static_cast<long long>(growth));
  EXPECT_LE(growth, kMostGrowthMiB);
  EXPECT_LT(peer.sent(), kFlood);
  peer.StopSending();
  set_fault("none");
  EXPECT_TRUE(Eventually([&] { return refused >= 2000; })) << refused << " of " << peer.sent();
  EXPECT_TRUE(in_order);
  peer.Cancel();
  reader.join();
}

// Reads an answer each 2 ms. Every refusal must arrive once, and the stream continues.
void ExpectASlowReaderGetsAll(const Plumbd& door) {
  constexpr uint64_t kBatches = 3000;
  Peer peer(door);
  peer.SendRefused(kBatches);
  v1::ServerMessage message;
  uint64_t refused = 0, last = 0;
  while (refused < kBatches && peer.Read(&message)) {
    for (const v1::Rejected& rejected : message.ack().rejected()) {
      EXPECT_EQ(rejected.sequence(), ++last);
      ++refused;
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_EQ(refused, kBatches);
  EXPECT_TRUE(peer.done());
}

TEST(Unread, ASlowReaderGetsAllOfAServer) {
  Plumbd server;
  ExpectASlowReaderGetsAll(server);
}

TEST(Unread, ASlowReaderGetsAllOfARelay) {
  Plumbd server;
  Plumbd relay({"--relay", server.address()});
  ExpectASlowReaderGetsAll(relay);
}

// ---- the end --------------------------------------------------------------------------------

// Streams and watches that stay open, a peer that reads nothing, and half a request.
void ExpectItStopsAtOnce(Plumbd* door, const std::string& http) {
  std::vector<std::unique_ptr<AgentStream>> held;
  for (uint32_t rank = 0; rank < 20; ++rank) {
    const v1::Source source = SourceOf("held", rank, 20);
    held.push_back(
        std::make_unique<AgentStream>(*door, 100 + rank, std::vector<v1::Source>{source}));
    ASSERT_TRUE(held.back()->Send(ScalarStep(source, 0), 1));
  }
  for (const auto& stream : held) ASSERT_TRUE(stream->Acknowledged(1));
  Peer peer(*door);
  peer.SendRefused(kFlood);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::IncidentEvent>>> watches;
  const auto query = v1::Query::NewStub(door->Channel());
  for (int i = 0; i < 4; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    watches.push_back(query->WatchIncidents(contexts.back().get(), {}));
  }
  const int half = http.empty() ? -1 : Dial(http);
  if (half >= 0) {
    EXPECT_EQ(write(half, "GET /metr", 9), 9);
  }
  std::this_thread::sleep_for(milliseconds(300));  // so that the peer's answers accumulate
  const auto begin = Clock::now();
  EXPECT_EQ(door->Stop(), 0) << door->process().errors();
  const std::chrono::duration<double> took = Clock::now() - begin;
  std::printf("stopped after %.2f s\n", took.count());
  EXPECT_LT(took.count(), 2);
  if (half >= 0) close(half);
  peer.StopSending();
  for (auto& stream : held) stream->Break();
  for (auto& context : contexts) context->TryCancel();
  for (auto& watch : watches) watch->Finish();
}

TEST(Unread, AServerStopsAtOnce) {
  TempFolder folder;
  Plumbd server({"--data", folder.File("data"), "--http", "127.0.0.1:0"});
  ASSERT_FALSE(server.address().empty()) << server.process().errors();
  ExpectItStopsAtOnce(&server, HttpAddress(server));
}

TEST(Unread, ARelayStopsAtOnce) {
  Plumbd server;
  Plumbd relay({"--relay", server.address()});
  ASSERT_FALSE(relay.address().empty()) << relay.process().errors();
  ExpectItStopsAtOnce(&relay, "");
}

// ---- a relay's connection, below and above its limit -----------------------------------------

// An upstream server that accepts a stream, and writes `bytes` bytes of answers to it.
class Flood : public v1::Ingest::Service {
 public:
  explicit Flood(size_t bytes) : bytes_(bytes) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Flood() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  size_t messages() const { return messages_; }

 private:
  grpc::Status Stream(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::ServerMessage, v1::AgentMessage>* call) override {
    v1::AgentMessage hello;
    if (!call->Read(&hello) || !hello.has_hello()) return grpc::Status::CANCELLED;
    v1::ServerMessage welcome;
    welcome.mutable_welcome()->set_protocol(1);
    welcome.mutable_welcome()->set_stream_id(hello.hello().stream_id());
    welcome.mutable_welcome()->set_line(hello.hello().line());
    call->Write(welcome);
    v1::ServerMessage message;
    message.mutable_ack()->set_stream_id(hello.hello().stream_id());
    message.mutable_ack()->set_line(hello.hello().line());
    message.mutable_ack()->add_rejected()->set_reason(std::string(1000, 'x'));
    for (size_t written = 0; written < bytes_; written += message.ByteSizeLong()) {
      if (!call->Write(message)) break;
      ++messages_;
    }
    while (call->Read(&hello)) {
    }
    return grpc::Status::OK;
  }

  const size_t bytes_;
  std::atomic<size_t> messages_{0};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

bool CutOff(Plumbd& relay) {
  return relay.process().errors().find("does not read the answers") != std::string::npos;
}

TEST(Unread, ALineAboveItsBoundIsEnded) {
  Flood above(16 << 20);
  Plumbd relay({"--relay", above.address()});
  ASSERT_FALSE(relay.address().empty()) << relay.process().errors();
  Peer peer(relay);
  EXPECT_TRUE(Eventually([&] { return CutOff(relay); })) << relay.process().errors();
  v1::ServerMessage message;
  size_t read = 0;
  while (peer.Read(&message)) ++read;
  EXPECT_LT(read, above.messages());
}

TEST(Unread, ALineBelowItsBoundWaitsForASlowReader) {
  Flood above(900 << 10);
  Plumbd relay({"--relay", above.address()});
  ASSERT_FALSE(relay.address().empty()) << relay.process().errors();
  Peer peer(relay);
  ASSERT_TRUE(Eventually([&] { return above.messages() >= (900u << 10) / 1100; }));
  std::this_thread::sleep_for(milliseconds(300));
  v1::ServerMessage message;
  ASSERT_TRUE(peer.Read(&message));
  EXPECT_TRUE(message.has_welcome());
  const size_t all = above.messages();
  for (size_t i = 0; i < all; ++i) ASSERT_TRUE(peer.Read(&message)) << i << " of " << all;
  EXPECT_FALSE(CutOff(relay));
}

}  // namespace
}  // namespace plumbline::test
