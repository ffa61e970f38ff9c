// Two tenants: one of them uses up everything that it can, and the other can still connect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/server/doors/support.h"
#include "tests/server/ingest/raw_call.h"
#include "tests/server/judge/made_room.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

class DoorsShares : public testing::Test {
 protected:
  void Start(const std::string& ingest, const std::string& more = "") {
    server_ = StartWith(folder_, "[ingest]\nack_seconds = 0.05\n" + ingest + Entry("a", a_, more) +
                                     Entry("b", b_, ""));
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  std::string Entry(const std::string& name, const TestToken& token, const std::string& more) {
    return "[[access]]\nname = '" + name + "'\ntoken_file = '" +
           WriteSecret(folder_, name + ".tokens", token.line) + "'\nscopes = ['write']\n" + more;
  }
  std::shared_ptr<grpc::Channel> As(const TestToken& token) const {
    return ChannelTo(server_->address(), {"", "", "", token.file});
  }
  static std::string SharedHello(uint64_t stream_id, const v1::Source& source) {
    v1::AgentMessage message;
    message.ParseFromString(HelloBytes(stream_id, {source}));
    message.mutable_hello()->set_shared(true);
    return message.SerializeAsString();
  }
  static std::vector<v1::Source> Ranks(const std::string& run, uint32_t ranks) {
    std::vector<v1::Source> sources;
    for (uint32_t rank = 0; rank < ranks; ++rank) sources.push_back(SourceOf(run, rank, ranks));
    return sources;
  }
  // Checks the other tenant after each attempt.
  void ExpectBGetsIn() {
    const v1::Source source = SourceOf("of-b");
    AgentStream b(As(b_), 900'000, {source});
    ASSERT_TRUE(b.Welcomed());
    b.Send(ScalarStep(source, 1), 1);
    EXPECT_TRUE(b.Acknowledged(1));
  }

  TempFolder folder_;
  const TestToken a_ = NewToken(folder_, "a"), b_ = NewToken(folder_, "b");
  std::unique_ptr<Plumbd> server_;
};

TEST_F(DoorsShares, HellosWithoutEndInOneCall) {
  constexpr uint64_t kStreams = 400;
  Start("max_streams = 400\n");
  RawCall call(As(a_), kAgentStream);
  uint64_t welcomed = 0, refused = 0;
  std::string why;
  for (uint64_t id = 1; id <= kStreams; ++id) {
    ASSERT_TRUE(call.Write(SharedHello(id, SourceOf("of-a", static_cast<uint32_t>(id), 1000))));
    std::string bytes;
    ASSERT_TRUE(call.Read(&bytes));
    v1::ServerMessage answer;
    ASSERT_TRUE(answer.ParseFromString(bytes));
    if (answer.has_welcome()) {
      ++welcomed;
    } else {
      ++refused;
      why = answer.ShortDebugString();
    }
  }
  EXPECT_EQ(welcomed, kStreams / 2);
  EXPECT_EQ(refused, kStreams / 2);
  EXPECT_THAT(why, HasSubstr("the access entry a has used its share, 200 of 400 streams"));
  EXPECT_THAT(why, HasSubstr("(ingest.max_streams)"));
  ExpectBGetsIn();
  call.Cancel();
  call.Status();
}

TEST_F(DoorsShares, HellosThatSpeakForThousandsOfRanks) {
  Start("max_ranks = 10000\n");
  AgentStream first(As(a_), 1, Ranks("of-a", 4096));
  ASSERT_TRUE(first.Welcomed());
  AgentStream second(As(a_), 2, Ranks("also-of-a", 4096));
  const grpc::Status status = second.Ended();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("5000 of 10000 ranks (ingest.max_ranks)"));
  EXPECT_THAT(status.error_message(), HasSubstr("raise access.share"));
  AgentStream others(As(b_), 3, Ranks("of-b", 4096));
  EXPECT_TRUE(others.Welcomed());
  EXPECT_FALSE(first.over());
}

TEST_F(DoorsShares, NamesOfRunsInHellosAndInBatches) {
  Start("max_runs = 20\n");
  std::vector<v1::Source> sources;
  for (int i = 0; i < 8; ++i) sources.push_back(SourceOf("a-" + std::to_string(i)));
  AgentStream a(As(a_), 1, sources);
  ASSERT_TRUE(a.Welcomed());
  AgentStream more(As(a_), 2, {SourceOf("a-8"), SourceOf("a-9")});
  ASSERT_TRUE(more.Welcomed());
  AgentStream beyond(As(a_), 3, {SourceOf("a-10")});
  EXPECT_THAT(beyond.Ended().error_message(), HasSubstr("10 of 20 runs (ingest.max_runs)"));
  v1::Batch named = ScalarStep(SourceOf("a-8"), 1);
  *named.add_sources() = SourceOf("a-11");
  more.Send(named, 1);
  EXPECT_THAT(more.RejectedReason(1), HasSubstr("expected a run of the hello"));
  ExpectBGetsIn();
}

// One connection per run: a's names are at its share. Its connected runs continue, b's too, and b's
// new runs are accepted up to b's own share.
TEST_F(DoorsShares, NamesOfRunsOfManyConnections) {
  Start("max_runs = 20\n");
  const v1::Source before = SourceOf("of-b-0");
  AgentStream b(As(b_), 500, {before});
  ASSERT_TRUE(b.Welcomed());
  std::vector<std::unique_ptr<AgentStream>> welcomed;
  uint64_t refused = 0;
  for (uint64_t i = 1; i <= 40; ++i) {
    auto a = std::make_unique<AgentStream>(
        As(a_), i, std::vector<v1::Source>{SourceOf("a-" + std::to_string(i))});
    if (i <= 10) {
      ASSERT_TRUE(a->Welcomed()) << i;
      welcomed.push_back(std::move(a));
    } else {
      EXPECT_THAT(a->Ended().error_message(), HasSubstr("10 of 20 runs (ingest.max_runs)"));
      ++refused;
    }
  }
  EXPECT_EQ(refused, 30u);
  for (size_t i = 0; i < welcomed.size(); ++i) {
    welcomed[i]->Send(ScalarStep(SourceOf("a-" + std::to_string(i + 1)), 1), 1);
    EXPECT_TRUE(welcomed[i]->Acknowledged(1)) << i;
  }
  b.Send(ScalarStep(before, 1), 1);
  EXPECT_TRUE(b.Acknowledged(1));
  for (uint64_t i = 1; i < 10; ++i) {
    AgentStream more(As(b_), 500 + i, {SourceOf("of-b-" + std::to_string(i))});
    EXPECT_TRUE(more.Welcomed()) << i;
  }
  // A run that was used before returns on a new connection.
  welcomed.clear();
  AgentStream again(As(a_), 1, {SourceOf("a-1")}, 2);
  EXPECT_TRUE(again.Welcomed());
}

TEST_F(DoorsShares, CallsThatStaySilent) {
  Start("max_streams = 10\n");
  std::vector<std::unique_ptr<RawCall>> calls;
  for (int i = 0; i < 10; ++i) {
    calls.push_back(std::make_unique<RawCall>(As(a_), kAgentStream));
    ASSERT_TRUE(calls.back()->Write(
        SharedHello(static_cast<uint64_t>(i) + 1, SourceOf("of-a", static_cast<uint32_t>(i), 64))));
  }
  RawCall beyond(As(a_), kAgentStream);
  EXPECT_EQ(beyond.Ended().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  ExpectBGetsIn();
  for (auto& call : calls) {
    call->Cancel();
    call->Status();
  }
}

// A sender that leaves many streams evicts its own, not those of others.
TEST_F(DoorsShares, StreamsThatAreRememberedAreSharedToo) {
  Start("max_streams = 20\n");
  const v1::Source source = SourceOf("of-b");
  {
    AgentStream b(As(b_), 500, {source});
    b.Send(ScalarStep(source, 1), 1);
    ASSERT_TRUE(b.Acknowledged(1));
  }
  for (uint64_t id = 1; id <= 60; ++id) {
    AgentStream a(As(a_), id, {SourceOf("of-a", static_cast<uint32_t>(id), 1000)});
    ASSERT_TRUE(a.Welcomed()) << id;
    a.Finish();
  }
  AgentStream back(As(b_), 500, {source});
  uint64_t acknowledged = 0;
  ASSERT_TRUE(back.Welcomed(&acknowledged));
  EXPECT_EQ(acknowledged, 1u);
}

TEST_F(DoorsShares, AreWhatTheEntryStates) {
  Start("max_streams = 100\n", "share = 0.02\n");
  AgentStream first(As(a_), 1, {SourceOf("of-a", 0, 3)});
  AgentStream second(As(a_), 2, {SourceOf("of-a", 1, 3)});
  ASSERT_TRUE(first.Welcomed());
  ASSERT_TRUE(second.Welcomed());
  AgentStream third(As(a_), 3, {SourceOf("of-a", 2, 3)});
  EXPECT_THAT(third.Ended().error_message(), HasSubstr("2 of 100 streams"));
  ExpectBGetsIn();
}

// No run is larger than b's, but a holds more than its share.
TEST_F(DoorsShares, OpenStepsOfManyRuns) {
  server_ = StartWith(folder_,
                      "[ingest]\nack_seconds = 0.05\n[limits]\nopen_bytes = 16_777_216\n" +
                          Entry("a", a_, "") + Entry("b", b_, ""),
                      {"--data", folder_.File("data"), "--grace", "600"});
  ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  // About 1.3 MB per step, which cannot close, because the other rank never comes.
  const auto send = [&](const TestToken& token, const std::string& run, uint64_t stream,
                        int64_t steps) {
    const v1::Source source = SourceOf(run, 0, 2);
    AgentStream agent(As(token), stream, {source});
    for (int64_t step = 1; step <= steps; ++step) {
      v1::Batch batch = BatchOf(source);
      for (int i = 0; i < 3000; ++i) AddScalar(&batch, "op" + std::to_string(i), step, 1.0);
      AddProgress(&batch, step);
      agent.Send(std::move(batch), static_cast<uint64_t>(step));
    }
    EXPECT_TRUE(agent.Acknowledged(static_cast<uint64_t>(steps)));
  };
  send(b_, "of-b", 1, 6);
  for (uint64_t run = 2; run < 8; ++run) send(a_, "of-a-" + std::to_string(run), run, 3);
  EXPECT_EQ(server_->Stop(), 0);
  std::set<std::string> closed;
  for (const v1::JudgeEvent& event : MadeRoom(folder_.File("data")))
    closed.insert(event.make_room().run());
  EXPECT_FALSE(closed.empty());
  EXPECT_FALSE(closed.contains("of-b"));
}

// ---- without access control: shares per address -------------------------------------------------

class DoorsAddresses : public testing::Test {
 protected:
  std::unique_ptr<AgentStream> Open(const std::string& address, uint64_t stream,
                                    const std::string& run) {
    return std::make_unique<AgentStream>(ChannelTo(address, {}), stream,
                                         std::vector<v1::Source>{SourceOf(run)});
  }
  // The sender gets all of 40 names, and half of 20 reserved ones while its connections are open.
  void UseUp(const std::string& address) {
    for (uint64_t i = 1; i <= 50; ++i) {
      held_.push_back(Open(address, i, "hog-" + std::to_string(i)));
      ASSERT_TRUE(held_.back()->Welcomed()) << i;
    }
    for (uint64_t i = 51; i <= 55; ++i) {
      const grpc::Status status = Open(address, i, "hog-" + std::to_string(i))->Ended();
      EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      EXPECT_THAT(status.error_message(), HasSubstr("127.0.0.1 has 10"));
    }
    EXPECT_EQ(server_->Info().dropped().at("refused-runs"), 5u);
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
  std::vector<std::unique_ptr<AgentStream>> held_;
};

constexpr char kFortyRuns[] = "[ingest]\nack_seconds = 0.05\nmax_runs = 40\n";

TEST_F(DoorsAddresses, AnotherAddressGetsItsNewRunsIn) {
  server_ = StartWith(folder_, kFortyRuns, {"--grpc", "[::]:0", "--insecure"});
  if (server_->address().empty()) GTEST_SKIP() << "no IPv6: " << server_->process().errors();
  const std::string port = server_->address().substr(server_->address().rfind(':'));
  UseUp("127.0.0.1" + port);
  for (uint64_t i = 100; i < 103; ++i) {
    held_.push_back(Open("[::1]" + port, i, "honest-" + std::to_string(i)));
    EXPECT_TRUE(held_.back()->Welcomed()) << i;
  }
}

TEST_F(DoorsAddresses, AProcessOfARelayGetsItsNewRunsIn) {
  server_ = StartWith(folder_, kFortyRuns);
  ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  UseUp(server_->address());
  Plumbd relay({"--relay", server_->address(), "--grpc", "unix:" + folder_.File("relay.sock")});
  ASSERT_FALSE(relay.address().empty()) << relay.process().errors();
  for (uint64_t i = 100; i < 103; ++i) {
    held_.push_back(Open(relay.address(), i, "honest-" + std::to_string(i)));
    EXPECT_TRUE(held_.back()->Welcomed()) << i;
  }
  held_.clear();
}

}  // namespace
}  // namespace plumbline::test
