// Damaged messages of every type that plumbd takes: the server answers each with a status, stays
// up, and another rank's stream is unaffected. Fixed seeds; PLUMB_LONG=1: for minutes.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "audit/live/client.h"
#include "audit/live/doctor_batch.h"
#include "tests/server/ingest/message_fuzz.h"
#include "tests/server/ingest/raw_call.h"
#include "tests/server/support.h"

namespace plumbline::test {
namespace {

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
    RawCall stream(channel, kAgentStream);
    // A quarter of the hellos are damaged too.
    const std::string bytes = hello.SerializeAsString();
    stream.Write(seed % 4 == 0 ? DamageBytes(bytes, random) : bytes);
    for (uint64_t s = 1; s <= 6; ++s) {
      *message.mutable_batch() = s % 2 ? LeakingStep(source, static_cast<int64_t>(s))
                                       : ScalarStep(source, static_cast<int64_t>(s));
      message.mutable_batch()->set_stream_id(stream_id);
      message.mutable_batch()->set_sequence(s);
      const std::string batch = message.SerializeAsString();
      stream.Write(random() % 3 ? DamageBytes(batch, random) : batch);
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
  // Some were refused, otherwise this test would show nothing.
  EXPECT_GT(server.Info().dropped().at("rejected-batches"), 20u);
  EXPECT_EQ(server.Stop(), 0) << server.process().errors();
}

// Valid messages of an agent, of every kind in AgentMessage (newer ones too: by reflection), with
// false values. Most pass the parser; many pass the checks and reach the rules. Ranks of a false
// world never come, and a stream that is ahead of them is not read until the grace is over.
TEST(WireFuzz, NoFieldHarmsTheServerOrAnotherRank) {
  TempFolder folder;
  const std::string config = folder.File("plumbd.toml");
  std::ofstream(config) << "[ingest]\ngrace_seconds = 0.1\n";
  Plumbd server({"--log-level", "off", "--config", config});
  ASSERT_FALSE(server.address().empty());
  const v1::Source good_source = SourceOf("fuzz-good");
  auto channel = server.Channel();
  const auto rounds = static_cast<unsigned>(Rounds(400, 20000));
  uint64_t sent = 0;
  for (unsigned seed = 0; seed < rounds; ++seed) {
    std::mt19937 random(seed);
    const uint64_t stream_id = 100000 + seed;
    const v1::Source source = SourceOf("fuzz-" + std::to_string(seed % 50), seed % 4, 4);
    v1::AgentMessage message;
    message.mutable_hello()->set_stream_id(stream_id);
    message.mutable_hello()->set_protocol(1);
    *message.mutable_hello()->add_sources() = source;
    RawCall stream(channel, kAgentStream);
    if (seed % 4 == 0) DamageFields(&message, random);
    stream.Write(message.SerializeAsString());
    for (uint64_t s = 1; s <= 8; ++s) {
      message.Clear();
      if (random() % 4 == 0) {
        FillByChance(&message, random);
      } else {
        *message.mutable_batch() = s % 2 ? LeakingStep(source, static_cast<int64_t>(s))
                                         : ScalarStep(source, static_cast<int64_t>(s));
        DamageFields(&message, random);
      }
      if (message.has_batch() && random() % 8 != 0) {
        message.mutable_batch()->set_stream_id(stream_id);
        message.mutable_batch()->set_sequence(s);
      }
      stream.Write(message.SerializePartialAsString());
    }
    const grpc::Status status = stream.Finish();
    EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << "seed " << seed;
    EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << "seed " << seed;
    ASSERT_TRUE(server.process().running()) << "seed " << seed;
    if (seed % 100 != 0) continue;
    // A separate call each time: in long runs one would exceed its deadline.
    AgentStream good(server, 71, {good_source}, ++sent);
    good.Send(ScalarStep(good_source, static_cast<int64_t>(sent)), sent);
    ASSERT_TRUE(good.Acknowledged(sent)) << "seed " << seed;
  }
  // Some were refused, and some were judged.
  const v1::ServerInfo info = server.Info();
  EXPECT_GT(info.dropped().at("rejected-batches"), rounds / 10);
  EXPECT_GT(info.batches(), rounds / 10);
  EXPECT_TRUE(Eventually([&] { return server.Run("fuzz-good")->evidence() == sent; }));
  EXPECT_EQ(server.Stop(), 0) << server.process().errors();
}

// A relay parses messages only as far as needed.
TEST(WireFuzz, NothingHarmsARelay) {
  Plumbd server({"--log-level", "off"});
  Plumbd relay({"--relay", server.address(), "--log-level", "off"});
  ASSERT_FALSE(relay.address().empty()) << relay.process().errors();
  const v1::Source good_source = SourceOf("fuzz-good");
  AgentStream good(relay, 71, {good_source});
  ASSERT_TRUE(good.Welcomed());
  auto channel = relay.Channel();
  const auto rounds = static_cast<unsigned>(Rounds(150, 2000));
  for (unsigned seed = 0; seed < rounds; ++seed) {
    std::mt19937 random(seed);
    const v1::Source source = SourceOf("fuzz-" + std::to_string(seed % 50));
    v1::AgentMessage message;
    message.mutable_hello()->set_stream_id(2000 + seed);
    message.mutable_hello()->set_protocol(1);
    *message.mutable_hello()->add_sources() = source;
    RawCall stream(channel, kAgentStream);
    const std::string hello = message.SerializeAsString();
    stream.Write(seed % 4 == 0 ? DamageBytes(hello, random) : hello);
    for (uint64_t s = 1; s <= 4; ++s) {
      *message.mutable_batch() = ScalarStep(source, static_cast<int64_t>(s));
      message.mutable_batch()->set_stream_id(2000 + seed);
      message.mutable_batch()->set_sequence(s);
      if (random() % 2 == 0) DamageFields(&message, random);
      const std::string batch = message.SerializePartialAsString();
      stream.Write(random() % 2 == 0 ? DamageBytes(batch, random) : batch);
    }
    const grpc::Status status = stream.Finish();
    EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << "seed " << seed;
    ASSERT_TRUE(relay.process().running() && server.process().running()) << "seed " << seed;
  }
  // One agent's invalid data must not end other streams of the same call: here with an unexpected
  // number, so that it cannot be refused by number.
  v1::AgentMessage message;
  message.mutable_hello()->set_stream_id(9);
  message.mutable_hello()->set_protocol(1);
  *message.mutable_hello()->add_sources() = SourceOf("garbage");
  RawCall garbage(channel, kAgentStream);
  garbage.Write(message.SerializeAsString());
  *message.mutable_batch() = ScalarStep(SourceOf("garbage"), 1);
  message.mutable_batch()->set_stream_id(9);
  message.mutable_batch()->set_sequence(99);
  std::string bytes = message.SerializeAsString();
  bytes.replace(bytes.find("loss"), 4, "\xff\xff\xff\xff");  // invalid UTF-8
  garbage.Write(bytes);
  const grpc::Status ended = garbage.Ended();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << ended.error_message();
  // Nor must a second hello, for which a server without a relay ends the call.
  RawCall twice(channel, kAgentStream);
  message.mutable_hello()->set_stream_id(10);
  message.mutable_hello()->set_protocol(1);
  *message.mutable_hello()->add_sources() = SourceOf("twice");
  twice.Write(message.SerializeAsString());
  twice.Write(message.SerializeAsString());
  EXPECT_EQ(twice.Ended().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  good.Send(ScalarStep(good_source, 1), 1);
  EXPECT_TRUE(good.Acknowledged(1));
  EXPECT_FALSE(good.over());
  EXPECT_EQ(relay.Stop(), 0);
  EXPECT_EQ(server.Stop(), 0) << server.process().errors();
}

// Every method of the query service, found by its descriptor.
TEST(WireFuzz, QueriesWithDamagedRequestsAreAnswered) {
  TempFolder folder;
  Plumbd server({"--log-level", "off", "--data", folder.File("data")});
  ASSERT_FALSE(server.address().empty());
  // Data for the queries.
  const v1::Source source = SourceOf("fuzz");
  AgentStream agent(server, 1, {source});
  for (int64_t step = 1; step <= 5; ++step) {
    agent.Send(step % 2 ? LeakingStep(source, step) : ScalarStep(source, step),
               static_cast<uint64_t>(step));
  }
  ASSERT_TRUE(agent.Acknowledged(5));
  ASSERT_TRUE(Eventually([&] { return !server.Incidents("fuzz").empty(); }));
  const std::string fingerprint = server.Incidents("fuzz")[0].finding().fingerprint();

  auto channel = server.Channel();
  const auto* query =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("plumbline.v1.Query");
  google::protobuf::DynamicMessageFactory factory;
  const auto rounds = static_cast<unsigned>(Rounds(60, 4000));
  for (int m = 0; m < query->method_count(); ++m) {
    const auto& method = *query->method(m);
    const std::string path = "/plumbline.v1.Query/" + method.name();
    for (unsigned seed = 0; seed < rounds; ++seed) {
      std::mt19937 random(seed);
      std::unique_ptr<google::protobuf::Message> request(
          factory.GetPrototype(method.input_type())->New());
      FillByChance(request.get(), random);
      const auto* run = method.input_type()->FindFieldByName("run");
      if (run != nullptr && seed % 2 == 0) {
        request->GetReflection()->SetString(request.get(), run, "fuzz");
      }
      std::string bytes = request->SerializePartialAsString();
      if (seed % 5 == 0) bytes = DamageBytes(std::move(bytes), random);
      const grpc::StatusCode code = CallOnce(channel, path, bytes).status.error_code();
      EXPECT_NE(code, grpc::StatusCode::UNAVAILABLE) << path << " seed " << seed;
      EXPECT_NE(code, grpc::StatusCode::DEADLINE_EXCEEDED) << path << " seed " << seed;
      ASSERT_TRUE(server.process().running()) << path << " seed " << seed;
    }
  }
  // Updates that name an existing incident.
  for (unsigned seed = 0; seed < rounds; ++seed) {
    std::mt19937 random(seed);
    v1::UpdateIncidentRequest request;
    FillByChance(&request, random);
    request.mutable_update()->set_fingerprint(fingerprint);
    if (seed % 2 == 0) request.mutable_update()->set_action(v1::IncidentUpdate::ACTION_SILENCE);
    const grpc::StatusCode code =
        CallOnce(channel, "/plumbline.v1.Query/UpdateIncident", request.SerializeAsString())
            .status.error_code();
    EXPECT_NE(code, grpc::StatusCode::UNAVAILABLE) << "seed " << seed;
    EXPECT_NE(code, grpc::StatusCode::DEADLINE_EXCEEDED) << "seed " << seed;
  }
  EXPECT_TRUE(audit::Client(server.address()).Health(30).ok());
  EXPECT_EQ(server.Stop(), 0) << server.process().errors();
  // Decisions are in the journal, and can be read again.
  Plumbd again({"--log-level", "off", "--data", folder.File("data")});
  EXPECT_FALSE(again.address().empty()) << again.process().errors();
}

}  // namespace
}  // namespace plumbline::test
