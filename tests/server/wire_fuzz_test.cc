// Mutated messages on the wire: the server answers each with a status, stays up, and another
// rank's stream is unharmed. Fixed seeds.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <random>

#include "audit/live/client.h"
#include "audit/live/doctor_batch.h"
#include "tests/server/support.h"

namespace plumbline::test {
namespace {

std::string Mutate(std::string bytes, std::mt19937& random) {
  const auto at = [&] { return bytes.empty() ? 0 : random() % bytes.size(); };
  const int edits = 1 + static_cast<int>(random() % 8);
  for (int i = 0; i < edits; ++i) {
    switch (random() % 5) {
      case 0:
        if (!bytes.empty()) bytes[at()] = static_cast<char>(random());
        break;
      case 1:
        if (!bytes.empty()) bytes[at()] ^= static_cast<char>(1u << random() % 8);
        break;
      case 2:
        bytes.resize(at());
        break;
      case 3:
        bytes.insert(at(), std::string(1 + random() % 16, static_cast<char>(random())));
        break;
      case 4: {
        const size_t from = at();
        bytes.insert(at(), bytes.substr(from, random() % 64));
        break;
      }
    }
  }
  return bytes;
}

grpc::ByteBuffer Buffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// One stream of raw messages through the generic stub, until the server ends it or all are sent.
class RawStream {
 public:
  RawStream(std::shared_ptr<grpc::Channel> channel) : stub_(std::move(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    call_ = stub_.PrepareCall(&context_, "/plumbline.v1.Ingest/Stream", &queue_);
    call_->StartCall(this);
    ok_ = Next();
  }
  bool Write(const std::string& bytes) {
    if (!ok_) return false;
    call_->Write(Buffer(bytes), this);
    return ok_ = Next();
  }
  // Reads what the server says, until it ends the call. Its status.
  grpc::Status Finish() {
    if (ok_) {
      call_->WritesDone(this);
      Next();
    }
    for (bool more = true; more;) {
      grpc::ByteBuffer answer;
      call_->Read(&answer, this);
      more = Next();
    }
    grpc::Status status;
    call_->Finish(&status, this);
    Next();
    return status;
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool ok_ = false;
};

TEST(WireFuzz, NoMessageHarmsTheServerOrAnotherRank) {
  Plumbd server({"--log-level", "off"});
  ASSERT_FALSE(server.address().empty());
  const v1::Source good_source = SourceOf("fuzz", 1, 2);
  AgentStream good(server, 71, {good_source});
  ASSERT_TRUE(good.Welcomed());
  auto channel = server.Channel();

  uint64_t good_sequence = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const uint64_t stream_id = 1000 + seed;
    const v1::Source source = SourceOf("fuzz-" + std::to_string(seed));
    v1::AgentMessage hello, message;
    hello.mutable_hello()->set_stream_id(stream_id);
    hello.mutable_hello()->set_protocol(1);
    *hello.mutable_hello()->add_sources() = source;
    RawStream stream(channel);
    // A quarter of the hellos are damaged too.
    const std::string bytes = hello.SerializeAsString();
    stream.Write(seed % 4 == 0 ? Mutate(bytes, random) : bytes);
    for (uint64_t s = 1; s <= 6; ++s) {
      *message.mutable_batch() = s % 2 ? LeakingStep(source, static_cast<int64_t>(s))
                                       : ScalarStep(source, static_cast<int64_t>(s));
      message.mutable_batch()->set_stream_id(stream_id);
      message.mutable_batch()->set_sequence(s);
      const std::string batch = message.SerializeAsString();
      stream.Write(random() % 3 ? Mutate(batch, random) : batch);
    }
    const grpc::Status status = stream.Finish();
    EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << "seed " << seed;
    EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << "seed " << seed;
    ASSERT_TRUE(server.process().running()) << "seed " << seed;
    if (seed % 30 == 0) {
      ++good_sequence;
      ASSERT_TRUE(
          good.Send(ScalarStep(good_source, static_cast<int64_t>(good_sequence)), good_sequence));
    }
  }
  const auto last_step = static_cast<int64_t>(good_sequence) + 1;
  good.Send(LeakingStep(good_source, last_step), good_sequence + 1);
  good.Send(Goodbye(good_source, last_step), good_sequence + 2);
  EXPECT_TRUE(good.Acknowledged(good_sequence + 2));
  const v1::Source other = SourceOf("fuzz", 0, 2);
  AgentStream second(server, 72, {other});
  second.Send(Goodbye(other, last_step), 1);
  EXPECT_TRUE(Eventually([&] { return !server.Incidents("fuzz", audit::kDoctorRule).empty(); }));
  EXPECT_EQ(server.Run("fuzz")->evidence(), good_sequence + 1);
  // Something was in fact refused, or this test would show nothing.
  EXPECT_GT(server.Info().dropped().at("rejected-batches"), 20u);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(WireFuzz, QueriesWithDamagedRequestsAreAnswered) {
  Plumbd server({"--log-level", "off"});
  ASSERT_FALSE(server.address().empty());
  auto channel = server.Channel();
  v1::ListIncidentsRequest request;
  request.set_run("run");
  request.set_rule("causality/*");
  request.set_min_level(v1::LEVEL_ERROR);
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    grpc::CompletionQueue queue;
    auto call = stub.PrepareUnaryCall(&context, "/plumbline.v1.Query/ListIncidents",
                                      Buffer(Mutate(request.SerializeAsString(), random)), &queue);
    call->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->Finish(&answer, &status, &queue);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << "seed " << seed;
    EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << "seed " << seed;
  }
  EXPECT_TRUE(audit::Client(server.address()).Health(30).ok());
}

}  // namespace
}  // namespace plumbline::test
