// Two tenants on one relay. A token's write permission applies to each batch, even if the relay's
// credentials allow more. No tenant can end the stream of the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/server/doors/support.h"
#include "tests/server/ingest/raw_call.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr char kSecret[] = "b-secret";

class RelayTenants : public testing::Test {
 protected:
  void SetUp() override {
    server_ = std::make_unique<Plumbd>();
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
    relay_ = StartWith(folder_, Entry("a", a_, "['a-*']") + Entry("b", b_, "['b-*']"),
                       {"--relay", server_->address()});
    ASSERT_FALSE(relay_->address().empty()) << relay_->process().errors();
  }
  std::string Entry(const std::string& name, const TestToken& token, const std::string& runs) {
    return "[[access]]\nname = '" + name + "'\ntoken_file = '" +
           WriteSecret(folder_, name + ".tokens", token.line) +
           "'\nscopes = ['write']\nruns = " + runs + "\n";
  }
  std::shared_ptr<grpc::Channel> As(const TestToken& token) const {
    return ChannelTo(relay_->address(), {"", "", "", token.file});
  }
  // Returns a stream of tenant b, whose run is in progress.
  std::unique_ptr<AgentStream> Victim() {
    auto victim =
        std::make_unique<AgentStream>(As(b_), kVictim, std::vector{SourceOf(kSecret, 0, 2)});
    EXPECT_TRUE(victim->Welcomed());
    EXPECT_TRUE(victim->Send(ScalarStep(SourceOf(kSecret, 0, 2), 0), 1));
    EXPECT_TRUE(victim->Acknowledged(1));
    return victim;
  }
  // Checks the victim after each attempt.
  void ExpectUnharmed(AgentStream* victim) {
    EXPECT_TRUE(victim->Send(ScalarStep(SourceOf(kSecret, 0, 2), 1), 2));
    EXPECT_TRUE(victim->Acknowledged(2));
    EXPECT_FALSE(victim->over());
    EXPECT_TRUE(Eventually([&] {
      const auto run = server_->Run(kSecret);
      return run && run->evidence() == 2;
    }));
    const auto run = server_->Run(kSecret);
    ASSERT_TRUE(run);
    EXPECT_EQ(run->attempt(), 0u);
    EXPECT_EQ(run->evidence(), 2u);
    EXPECT_EQ(run->late(), 0u);
    EXPECT_EQ(run->lost(), 0u);
    EXPECT_TRUE(server_->Incidents(kSecret).empty());
  }
  // Returns a batch that a thief writes to the run of another tenant: a later attempt, with a
  // finding.
  static v1::Batch Forged() { return ScalarStep(SourceOf(kSecret, 0, 2, 1), 5, kNan); }

  static constexpr uint64_t kVictim = 7, kThief = 8;
  TempFolder folder_;
  const TestToken a_ = NewToken(folder_, "a"), b_ = NewToken(folder_, "b");
  std::unique_ptr<Plumbd> server_, relay_;
};

TEST_F(RelayTenants, ABatchOfAnotherTenantsRunIsRefused) {
  const auto victim = Victim();
  AgentStream thief(As(a_), kThief, {SourceOf("a-1")});
  ASSERT_TRUE(thief.Welcomed());
  ASSERT_TRUE(thief.Send(Forged(), 1));
  EXPECT_THAT(thief.RejectedReason(1),
              HasSubstr("sources[0]: expected a run of the hello, found \"b-secret\""));
  // The stream continues.
  ASSERT_TRUE(thief.Send(ScalarStep(SourceOf("a-1"), 0), 2));
  EXPECT_TRUE(thief.Acknowledged(2));
  ExpectUnharmed(victim.get());
}

// The same at the server itself, without access control.
TEST_F(RelayTenants, DirectlyTheSameBatchIsRefused) {
  AgentStream stream(*server_, kThief, {SourceOf("a-1")});
  ASSERT_TRUE(stream.Welcomed());
  v1::Batch both = ScalarStep(SourceOf("a-1"), 0);
  *both.add_sources() = SourceOf(kSecret);
  ASSERT_TRUE(stream.Send(both, 1));
  EXPECT_THAT(stream.RejectedReason(1),
              HasSubstr("sources[1]: expected a run of the hello, found"));
  ASSERT_TRUE(stream.Send(ScalarStep(SourceOf("a-1"), 0), 2));
  EXPECT_TRUE(stream.Acknowledged(2));
  EXPECT_FALSE(server_->Run(kSecret));
}

TEST_F(RelayTenants, AHelloOfAnotherTenantsRunIsRefused) {
  const auto victim = Victim();
  AgentStream thief(As(a_), kThief, {SourceOf(kSecret, 1, 2)});
  EXPECT_EQ(thief.Ended().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  ExpectUnharmed(victim.get());
}

TEST_F(RelayTenants, ASecondHelloOfOneLineIsRefused) {
  const auto victim = Victim();
  AgentStream thief(As(a_), kThief, {SourceOf("a-1")});
  ASSERT_TRUE(thief.Welcomed());
  v1::AgentMessage hello;
  ASSERT_TRUE(hello.ParseFromString(HelloBytes(kThief, {SourceOf(kSecret, 1, 2)})));
  hello.mutable_hello()->set_shared(true);
  ASSERT_TRUE(thief.SendRaw(hello));
  EXPECT_EQ(thief.Ended().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  ExpectUnharmed(victim.get());
}

TEST_F(RelayTenants, AStolenStreamIdDoesNotEndItsOwner) {
  const auto victim = Victim();
  for (int i = 0; i < 3; ++i) {
    AgentStream thief(As(a_), kVictim, {SourceOf("a-1")});
    EXPECT_EQ(thief.Ended().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  }
  EXPECT_FALSE(victim->over());
  // The owner can still reconnect.
  AgentStream again(As(b_), kVictim, {SourceOf(kSecret, 0, 2)}, 2);
  ASSERT_TRUE(again.Welcomed());
  EXPECT_EQ(victim->Ended().error_code(), grpc::StatusCode::ABORTED);
  ExpectUnharmed(&again);
}

// A thief that disconnects before the answer does not end the owner's stream.
TEST_F(RelayTenants, AThiefThatLeavesAtOnceDoesNotEndTheOwner) {
  const auto victim = Victim();
  for (int i = 0; i < 20; ++i) {
    AgentStream thief(As(a_), kVictim, {SourceOf("a-1")});
    thief.Break();
  }
  ExpectUnharmed(victim.get());
}

std::string Tagged(int field, const std::string& member) {
  std::string bytes(1, static_cast<char>(field << 3 | 2));
  for (size_t size = member.size();; size >>= 7) {
    bytes += static_cast<char>((size & 0x7F) | (size > 0x7F ? 0x80 : 0));
    if (size <= 0x7F) break;
  }
  return bytes + member;
}

// A parser merges a field that is written twice, so the last head does not match the merged
// message.
TEST_F(RelayTenants, AMessageWithTwoHeadsEndsItsLine) {
  const auto victim = Victim();
  v1::Batch theirs = Forged(), own = ScalarStep(SourceOf("a-1"), 0);
  theirs.set_stream_id(kVictim);
  theirs.set_sequence(2);
  own.set_stream_id(kThief);
  own.set_sequence(1);
  v1::Batch only_the_id;
  only_the_id.set_stream_id(kThief);
  const std::string kHeads[] = {
      Tagged(2, theirs.SerializeAsString()) + Tagged(2, own.SerializeAsString()),
      Tagged(2, theirs.SerializeAsString()) + Tagged(5, only_the_id.SerializeAsString()),
      HelloBytes(kVictim, {SourceOf(kSecret, 1, 2)}) + Tagged(2, own.SerializeAsString()),
      Tagged(2, theirs.SerializeAsString()) + Tagged(3, only_the_id.SerializeAsString()),
  };
  for (const std::string& bytes : kHeads) {
    RawCall call(As(a_), kAgentStream);
    ASSERT_TRUE(call.Write(HelloBytes(kThief, {SourceOf("a-1")})));
    ASSERT_TRUE(call.Read());
    ASSERT_TRUE(call.Write(bytes));
    EXPECT_EQ(call.Ended().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  ExpectUnharmed(victim.get());
}

// Healthy twin: two tenants with several runs and processes on one relay.
TEST_F(RelayTenants, TwoTenantsWithSeveralRunsWork) {
  struct Process {
    std::string run;
    uint32_t rank;
    std::unique_ptr<AgentStream> stream;
  };
  std::vector<Process> processes;
  for (const char* run : {"a-1", "a-2", "b-1", "b-2"}) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const uint64_t id = 100 + processes.size();
      processes.push_back({run, rank,
                           std::make_unique<AgentStream>(As(run[0] == 'a' ? a_ : b_), id,
                                                         std::vector{SourceOf(run, rank, 2)})});
    }
  }
  for (const Process& process : processes) ASSERT_TRUE(process.stream->Welcomed());
  for (uint64_t n = 1; n <= 10; ++n) {
    for (const Process& p : processes) {
      ASSERT_TRUE(
          p.stream->Send(ScalarStep(SourceOf(p.run, p.rank, 2), static_cast<int64_t>(n) - 1), n));
    }
  }
  for (const Process& process : processes) EXPECT_TRUE(process.stream->Acknowledged(10));
  for (const char* run : {"a-1", "a-2", "b-1", "b-2"}) {
    EXPECT_TRUE(Eventually([&] {
      const auto info = server_->Run(run);
      return info && info->evidence() == 20 && info->closed_step() == 9;
    })) << run;
  }
}

}  // namespace
}  // namespace plumbline::test
