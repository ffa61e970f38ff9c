// Agents connected through plumbd --relay: the server sees their streams as if they were connected
// directly, and each batch once, even if connections break.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/support.h"

namespace plumbline {
namespace {

using test::AgentStream;
using test::Eventually;
using test::Plumbd;
using test::ScalarStep;
using test::SourceOf;

std::unique_ptr<Plumbd> RelayTo(const Plumbd& server) {
  return std::make_unique<Plumbd>(std::vector<std::string>{"--relay", server.address()});
}

uint64_t Evidence(const Plumbd& server, const std::string& run) {
  const auto info = server.Run(run);
  return info ? info->evidence() : 0;
}

TEST(Relay, ManyStreamsOneCall) {
  Plumbd server;
  const auto relay = RelayTo(server);
  ASSERT_FALSE(relay->address().empty()) << relay->process().errors();
  constexpr uint32_t kRanks = 12;
  std::vector<std::unique_ptr<AgentStream>> agents;
  for (uint32_t r = 0; r < kRanks; ++r) {
    agents.push_back(std::make_unique<AgentStream>(
        *relay, 100 + r, std::vector<v1::Source>{SourceOf("relayed", r, kRanks)}));
    ASSERT_TRUE(agents.back()->Welcomed());
  }
  for (uint64_t n = 1; n <= 20; ++n) {
    for (uint32_t r = 0; r < kRanks; ++r) {
      ASSERT_TRUE(agents[r]->Send(
          ScalarStep(SourceOf("relayed", r, kRanks), static_cast<int64_t>(n) - 1), n));
    }
  }
  for (const auto& agent : agents) EXPECT_TRUE(agent->Acknowledged(20));
  EXPECT_TRUE(Eventually([&] {  // evidence is counted before its step is closed
    const auto run = server.Run("relayed");
    return run && run->evidence() == 20 * kRanks && run->closed_step() == 19;
  }));
  EXPECT_EQ(server.Run("relayed")->ranks_connected(), kRanks);
  // If a stream ends, it is gone at the server, and the others stay.
  agents[3]->Break();
  EXPECT_TRUE(Eventually([&] { return server.Run("relayed")->ranks_connected() == kRanks - 1; }));
  ASSERT_TRUE(agents[4]->Send(ScalarStep(SourceOf("relayed", 4, kRanks), 20), 21));
  EXPECT_TRUE(agents[4]->Acknowledged(21));
}

TEST(Relay, AServerThatComesBackHasEverythingOnce) {
  auto server = std::make_unique<Plumbd>();
  const std::string above = server->address();
  const auto relay = RelayTo(*server);
  const v1::Source source = SourceOf("relayed");
  {
    AgentStream agent(*relay, 7, {source});
    ASSERT_TRUE(agent.Welcomed());
    ASSERT_TRUE(agent.Send(ScalarStep(source, 0), 1));
    ASSERT_TRUE(agent.Acknowledged(1));
    server->process().Signal(SIGKILL);
    EXPECT_EQ(agent.Ended().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  server->process().Wait();
  server = Plumbd::At(above);
  ASSERT_EQ(server->address(), above);
  // The channel of the relay may still wait before it dials again.
  uint64_t held = 99;
  std::unique_ptr<AgentStream> agent;
  ASSERT_TRUE(Eventually([&] {
    agent = std::make_unique<AgentStream>(*relay, 7, std::vector<v1::Source>{source}, 2);
    return agent->Send(ScalarStep(source, 1), 2) && agent->Welcomed(&held);
  }));
  EXPECT_TRUE(agent->Send(ScalarStep(source, 1), 2)) << "again: it counts once";
  EXPECT_TRUE(agent->Send(ScalarStep(source, 2), 3));
  EXPECT_TRUE(agent->Acknowledged(3));
  EXPECT_TRUE(Eventually([&] { return Evidence(*server, "relayed") == 2; }));
}

TEST(Relay, WhatIsRefusedEndsOneStreamAlone) {
  Plumbd server;
  const auto relay = RelayTo(server);
  const v1::Source source = SourceOf("relayed");
  AgentStream first(*relay, 7, {source});
  ASSERT_TRUE(first.Welcomed());
  AgentStream second(*relay, 8, {source});  // the same rank
  EXPECT_EQ(second.Ended().error_code(), grpc::StatusCode::ALREADY_EXISTS);
  ASSERT_TRUE(first.Send(ScalarStep(source, 0), 1));
  EXPECT_TRUE(first.Acknowledged(1));
  // The same stream on a new connection: the older connection ends, the stream continues.
  AgentStream again(*relay, 7, {source}, 2);
  ASSERT_TRUE(again.Welcomed());
  EXPECT_EQ(first.Ended().error_code(), grpc::StatusCode::ABORTED);
  ASSERT_TRUE(again.Send(ScalarStep(source, 1), 2));
  EXPECT_TRUE(again.Acknowledged(2));
}

TEST(Relay, NoPeerSpeaksForTheStreamOfAnother) {
  Plumbd server;
  const auto relay = RelayTo(server);
  AgentStream victim(*relay, 7, {SourceOf("relayed", 0, 2)});
  AgentStream other(*relay, 8, {SourceOf("relayed", 1, 2)});
  ASSERT_TRUE(victim.Welcomed());
  ASSERT_TRUE(other.Welcomed());
  v1::AgentMessage forged;
  *forged.mutable_batch() = ScalarStep(SourceOf("relayed", 0, 2), 0);
  forged.mutable_batch()->set_stream_id(7);
  forged.mutable_batch()->set_sequence(1);
  other.SendRaw(forged);
  EXPECT_EQ(other.Ended().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_TRUE(victim.Send(ScalarStep(SourceOf("relayed", 0, 2), 0), 1));
  EXPECT_TRUE(victim.Acknowledged(1));
}

TEST(Relay, WithoutAServerAboveAgentsAreMadeToWait) {
  // Does not use a port that was free a moment ago, because another test may use it now.
  Plumbd relay({"--relay", "127.0.0.1:1"});
  ASSERT_FALSE(relay.address().empty()) << relay.process().errors();
  AgentStream agent(relay, 7, {SourceOf("relayed")});
  EXPECT_EQ(agent.Ended().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(relay.Stop(), 0);
}

TEST(Relay, KeepsNothingAndReportsIt) {
  test::TempFolder folder;
  test::Process relay({PLUMBD_PROGRAM, "--relay", "127.0.0.1:1", "--data", folder.File("data")});
  EXPECT_EQ(relay.Wait(), 2);
  EXPECT_THAT(
      relay.errors(),
      ::testing::HasSubstr("--data: expected none together with relay.upstream: a relay judges"));
}

// A rank with a long backlog reconnects first. The hello of the other one follows it on the same
// call, and is read long before the grace (30 s) is over.
TEST(Relay, AHelloDoesNotWaitForABacklog) {
  Plumbd server;
  const auto relay = RelayTo(server);
  const v1::Source fast = SourceOf("relayed", 0, 2), slow = SourceOf("relayed", 1, 2);
  {
    AgentStream first(*relay, 7, {fast}), second(*relay, 8, {slow});
    ASSERT_TRUE(first.Send(ScalarStep(fast, 0), 1));
    ASSERT_TRUE(second.Send(ScalarStep(slow, 0), 1));
    ASSERT_TRUE(first.Acknowledged(1));
    ASSERT_TRUE(second.Acknowledged(1));
  }
  AgentStream first(*relay, 7, {fast});
  ASSERT_TRUE(first.Welcomed());
  for (int64_t step = 1; step <= 200; ++step)
    ASSERT_TRUE(first.Send(ScalarStep(fast, step), static_cast<uint64_t>(step) + 1));
  const auto begin = std::chrono::steady_clock::now();
  AgentStream second(*relay, 8, {slow});
  ASSERT_TRUE(second.Welcomed());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  for (int64_t step = 1; step <= 200; ++step)
    ASSERT_TRUE(second.Send(ScalarStep(slow, step), static_cast<uint64_t>(step) + 1));
  EXPECT_TRUE(second.Acknowledged(201));
  EXPECT_TRUE(first.Acknowledged(201));
  EXPECT_TRUE(Eventually([&] {
    const auto run = server.Run("relayed");
    return run && run->closed_step() == 200 && run->late() == 0;
  }));
}

// A process connected through a relay reconnects with a different hello: it is refused, and its
// former connection, which is not replaced, has ended.
TEST(Relay, WhoIsRefusedWhenItComesBackHasLeft) {
  Plumbd server;
  ASSERT_FALSE(server.address().empty()) << server.process().errors();
  grpc::ClientContext context;
  const auto stub = v1::Ingest::NewStub(server.Channel());
  const auto call = stub->Stream(&context);
  v1::AgentMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_stream_id(7);
  hello.set_protocol(1);
  hello.set_next_sequence(1);
  hello.set_shared(true);
  *hello.add_sources() = SourceOf("run", 0, 2);
  const auto connected = [&server](uint32_t ranks) {
    return Eventually([&server, ranks] {
      const auto run = server.Run("run");
      return run && run->ranks_connected() == ranks;
    });
  };
  ASSERT_TRUE(call->Write(message));
  ASSERT_TRUE(connected(1));
  hello.mutable_sources(0)->set_rank(2);  // of two
  ASSERT_TRUE(call->Write(message));
  EXPECT_TRUE(connected(0));
  context.TryCancel();
}

}  // namespace
}  // namespace plumbline
