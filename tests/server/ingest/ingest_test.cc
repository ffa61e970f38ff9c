// Batches in, incidents out, over a real plumbd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "audit/live/doctor_batch.h"
#include "tests/server/support.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

bool HasIncident(const Plumbd& server, const std::string& run) {
  return Eventually([&] { return !server.Incidents(run, audit::kDoctorRule).empty(); });
}

// Returns true once everything sent of `run` has been judged. Later items are judged then, and
// there is one thread.
bool Judged(const Plumbd& server, const std::string& run, uint64_t evidence, int64_t step) {
  return Eventually([&] {
    const auto info = server.Run(run);
    return info && info->evidence() == evidence && info->closed_step() >= step;
  });
}

// The verdicts of a step are added one after another, so its incident gathers its ranks.
bool HasIncidentOfBothRanks(const Plumbd& server, const std::string& run) {
  return Eventually([&] {
    const auto incidents = server.Incidents(run, audit::kDoctorRule);
    if (incidents.empty()) return false;
    const auto& ranks = incidents[0].finding().site().ranks();
    return ranks.size() == 2 && ranks[0] == 0 && ranks[1] == 1;
  });
}

class IngestTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(server_.address().empty()) << server_.process().errors(); }
  void TearDown() override {
    if (HasFailure()) ADD_FAILURE() << "plumbd printed:\n" << server_.process().errors();
  }
  Plumbd server_;
};

TEST_F(IngestTest, LeakingEvidenceBecomesOneIncident) {
  const v1::Source source = SourceOf("exp");
  AgentStream agent(server_, 11, {source});
  uint64_t held = 99;
  ASSERT_TRUE(agent.Welcomed(&held));
  EXPECT_EQ(held, 0u);
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(agent.Send(LeakingStep(source, step), static_cast<uint64_t>(step) + 1));
  }
  ASSERT_TRUE(Judged(server_, "exp", 3, 2));
  const auto incidents = server_.Incidents("exp", audit::kDoctorRule);
  ASSERT_EQ(incidents.size(), 1u);
  EXPECT_EQ(incidents[0].count(), 3u);
  EXPECT_EQ(incidents[0].state(), v1::Incident::STATE_OPEN);
  EXPECT_EQ(incidents[0].finding().site().step_first(), 0);
  EXPECT_EQ(incidents[0].finding().site().step_last(), 2);
  EXPECT_EQ(incidents[0].finding().strength(), v1::STRENGTH_PROVED);
  EXPECT_EQ(incidents[0].finding().fingerprint().size(), 32u);
  EXPECT_EQ(server_.Run("exp")->open_incidents(), server_.Incidents("exp").size());
}

// Sends messages of a few bytes about thousands of ranks, without a pause.
TEST_F(IngestTest, AFloodOfHeartbeatsIsHeardOneByOne) {
  std::vector<v1::Source> sources;
  for (uint32_t rank = 0; rank < 4096; ++rank) sources.push_back(SourceOf("beats", rank, 4096));
  AgentStream agent(server_, 19, sources);
  ASSERT_TRUE(agent.Welcomed());
  v1::AgentMessage message;
  message.mutable_heartbeat()->set_stream_id(19);
  for (int i = 0; i < 10000; ++i) ASSERT_TRUE(agent.SendRaw(message));
  const v1::Source source = SourceOf("exp");
  AgentStream other(server_, 20, {source});
  ASSERT_TRUE(other.Send(LeakingStep(source, 0), 1));
  EXPECT_TRUE(HasIncident(server_, "exp"));
  std::istringstream status(
      ReadFile("/proc/" + std::to_string(server_.process().pid()) + "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) {
      EXPECT_LT(std::stol(line.substr(6)), 1L << 20) << "KiB";
    }
  }
}

TEST_F(IngestTest, AcknowledgesEveryEightBatchesAndAtOnceWhenFinished) {
  const v1::Source source = SourceOf("acks");
  AgentStream agent(server_, 12, {source});
  for (uint64_t s = 1; s <= 16; ++s) agent.Send(ScalarStep(source, static_cast<int64_t>(s)), s);
  ASSERT_TRUE(agent.Acknowledged(16));
  // At best there are two acknowledgements. On a slow machine the timer may add some, but never one
  // per batch.
  EXPECT_LE(agent.acks(), 12u);
  agent.Send(Goodbye(source, 16), 17);
  ASSERT_TRUE(agent.Acknowledged(17));
  EXPECT_TRUE(agent.Finish().ok());
}

TEST_F(IngestTest, ALoneBatchIsAcknowledgedByTheClock) {
  const v1::Source source = SourceOf("clock");
  AgentStream agent(server_, 13, {source});
  agent.Send(ScalarStep(source, 0), 1);
  EXPECT_TRUE(agent.Acknowledged(1));
}

TEST_F(IngestTest, DuplicatesAreCountedAndJudgedOnce) {
  const v1::Source source = SourceOf("twice");
  AgentStream agent(server_, 14, {source});
  for (int i = 0; i < 5; ++i) agent.Send(LeakingStep(source, 0), 1);
  agent.Send(ScalarStep(source, 1), 2);
  ASSERT_TRUE(Judged(server_, "twice", 2, 1));
  EXPECT_EQ(server_.Info().duplicates(), 4u);
  const auto incidents = server_.Incidents("twice", audit::kDoctorRule);
  ASSERT_EQ(incidents.size(), 1u);
  EXPECT_EQ(incidents[0].count(), 1u);
}

TEST_F(IngestTest, ReorderedBatchesWaitForTheGap) {
  const v1::Source source = SourceOf("order");
  AgentStream agent(server_, 15, {source});
  agent.Send(LeakingStep(source, 2), 3);
  agent.Send(LeakingStep(source, 1), 2);
  agent.Send(LeakingStep(source, 0), 1);
  ASSERT_TRUE(agent.Acknowledged(3));
  ASSERT_TRUE(Judged(server_, "order", 3, 2));
  EXPECT_EQ(server_.Info().out_of_order(), 2u);
  EXPECT_EQ(server_.Incidents("order", audit::kDoctorRule)[0].count(), 3u);
  EXPECT_EQ(server_.Run("order")->lost(), 0u);
}

TEST_F(IngestTest, TooMuchAfterAGapEndsTheStreamWithoutLoss) {
  const v1::Source source = SourceOf("gap");
  AgentStream agent(server_, 16, {source});
  for (uint64_t s = 2; s < 200; ++s) agent.Send(ScalarStep(source, static_cast<int64_t>(s)), s);
  const grpc::Status status = agent.Ended();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("wait for batch 1;"));
  // Sent again from the start, everything arrives.
  AgentStream again(server_, 16, {source});
  for (uint64_t s = 1; s < 200; ++s) again.Send(ScalarStep(source, static_cast<int64_t>(s)), s);
  again.Send(Goodbye(source, 199), 200);
  ASSERT_TRUE(again.Acknowledged(200));
  EXPECT_TRUE(Judged(server_, "gap", 199, 199));
}

TEST_F(IngestTest, AReconnectedStreamLearnsWhatIsHeld) {
  const v1::Source source = SourceOf("again");
  {
    AgentStream agent(server_, 17, {source});
    for (uint64_t s = 1; s <= 8; ++s) agent.Send(ScalarStep(source, static_cast<int64_t>(s)), s);
    ASSERT_TRUE(agent.Acknowledged(8));
    agent.Break();
  }
  AgentStream agent(server_, 17, {source}, 5);
  uint64_t held = 0;
  ASSERT_TRUE(agent.Welcomed(&held));
  EXPECT_EQ(held, 8u);
  for (uint64_t s = 5; s <= 9; ++s) agent.Send(ScalarStep(source, static_cast<int64_t>(s)), s);
  ASSERT_TRUE(Judged(server_, "again", 9, 9));
}

TEST_F(IngestTest, AServerThatKnowsNothingGoesOnFromWhatTheAgentStillHolds) {
  const v1::Source source = SourceOf("restarted");
  AgentStream agent(server_, 18, {source}, 101);
  uint64_t held = 99;
  ASSERT_TRUE(agent.Welcomed(&held));
  EXPECT_EQ(held, 0u);  // so that the agent declares its sites again
  agent.Send(Goodbye(source, 0), 101);
  EXPECT_TRUE(agent.Acknowledged(101));
}

TEST_F(IngestTest, EachMalformedBatchIsRefusedAndNoOtherIsHarmed) {
  const v1::Source bad_source = SourceOf("mixed", 0, 2);
  const v1::Source good_source = SourceOf("mixed", 1, 2);
  AgentStream bad(server_, 19, {bad_source});
  AgentStream good(server_, 20, {good_source});
  ASSERT_TRUE(bad.Welcomed());
  ASSERT_TRUE(good.Welcomed());  // so that its rank is taken
  const struct {
    std::function<void(v1::Batch&)> damage;
    const char* reason;
  } cases[] = {
      {[](auto& b) { b.mutable_evidence(0)->set_source(7); }, "evidence[0].source: 7"},
      {[](auto& b) { b.mutable_evidence(0)->clear_site(); }, "evidence[0].site"},
      {[](auto& b) { b.mutable_evidence(0)->set_step(-5); }, "evidence[0].step: -5"},
      {[](auto& b) {
         b.mutable_evidence(0)->mutable_routing()->mutable_sample()->mutable_scores()->set_data(
             "x");
       },
       "1 bytes of data"},
      {[](auto& b) { b.mutable_progress(0)->set_source(3); }, "progress[0].source: 3"},
      {[](auto& b) { b.mutable_sources(0)->set_rank(2); }, "rank 2 of 2"},
      {[](auto& b) { b.mutable_evidence(0)->mutable_site()->set_op(std::string(100000, 'x')); },
       "site.op: 100000"},
      // Sends the rank of another stream, which must be refused. Otherwise a sender could corrupt
      // that rank's evidence.
      {[](auto& b) { b.mutable_sources(0)->set_rank(1); }, "already reported by another"},
  };
  uint64_t sequence = 0;
  for (const auto& c : cases) {
    v1::Batch b = LeakingStep(bad_source, 0);
    c.damage(b);
    ASSERT_TRUE(bad.Send(b, ++sequence));
    EXPECT_THAT(bad.RejectedReason(sequence), HasSubstr(c.reason));
  }
  EXPECT_EQ(server_.Info().dropped().at("rejected-batches"), sequence);
  EXPECT_EQ(server_.Info().dropped().at("rejected-evidence"), sequence);
  // Both streams continue, and their evidence is joined.
  good.Send(LeakingStep(good_source, 0), 1);
  bad.Send(LeakingStep(bad_source, 0), ++sequence);
  ASSERT_TRUE(Judged(server_, "mixed", 2, 0));
  EXPECT_TRUE(HasIncidentOfBothRanks(server_, "mixed"));
  EXPECT_EQ(server_.Run("mixed")->evidence(), 2u);
}

TEST_F(IngestTest, ABrokenProtocolEndsTheStreamWithAStatus) {
  const v1::Source source = SourceOf("protocol");
  {
    AgentStream agent(server_, 21, {source});
    agent.Send(ScalarStep(source, 0), 0);
    EXPECT_EQ(agent.Ended().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  {
    AgentStream agent(server_, 0, {source});
    EXPECT_EQ(agent.Ended().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  {
    AgentStream agent(server_, 22, {source});
    v1::AgentMessage hello;
    hello.mutable_hello()->set_stream_id(22);
    hello.mutable_hello()->set_protocol(1);
    agent.SendRaw(hello);
    EXPECT_EQ(agent.Ended().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  }
  {
    auto stub = v1::Ingest::NewStub(server_.Channel());
    grpc::ClientContext context;
    auto stream = stub->Stream(&context);
    v1::AgentMessage batch;
    *batch.mutable_batch() = ScalarStep(source, 0);
    stream->Write(batch);
    v1::ServerMessage answer;
    while (stream->Read(&answer)) {
    }
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  }
}

TEST_F(IngestTest, ASecondProcessThatClaimsAConnectedRankIsRefused) {
  const v1::Source source = SourceOf("claimed");
  AgentStream first(server_, 23, {source});
  ASSERT_TRUE(first.Welcomed());
  {
    AgentStream second(server_, 24, {source});
    const grpc::Status status = second.Ended();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
    EXPECT_THAT(status.error_message(), HasSubstr("rank 0 of run \"claimed\""));
  }
  first.Send(Goodbye(source, -1), 1);
  ASSERT_TRUE(first.Acknowledged(1));
  AgentStream third(server_, 25, {source});  // the rank is free again
  EXPECT_TRUE(third.Welcomed());
}

TEST_F(IngestTest, AStepWaitsForItsLateRank) {
  const v1::Source rank0 = SourceOf("join", 0, 2), rank1 = SourceOf("join", 1, 2);
  AgentStream early(server_, 26, {rank0}), late(server_, 27, {rank1});
  early.Send(LeakingStep(rank0, 0), 1);
  early.Send(ScalarStep(rank0, 1), 2);
  ASSERT_TRUE(Eventually([&] {
    const auto info = server_.Run("join");
    return info && info->evidence() == 2;
  }));
  early.Send(ScalarStep(rank0, 2), 3);
  ASSERT_TRUE(Eventually([&] { return server_.Run("join")->evidence() == 3; }));
  EXPECT_TRUE(server_.Incidents("join", audit::kDoctorRule).empty()) << "judged without rank 1";
  late.Send(LeakingStep(rank1, 0), 1);
  EXPECT_TRUE(HasIncidentOfBothRanks(server_, "join"));
  EXPECT_EQ(server_.Run("join")->lost(), 0u);
}

TEST_F(IngestTest, TwoRunsAtOnceDoNotMix) {
  const v1::Source a = SourceOf("a"), b = SourceOf("b");
  AgentStream stream_a(server_, 28, {a}), stream_b(server_, 29, {b});
  for (uint64_t s = 1; s <= 5; ++s) {
    stream_a.Send(LeakingStep(a, static_cast<int64_t>(s)), s);
    stream_b.Send(ScalarStep(b, static_cast<int64_t>(s)), s);
  }
  ASSERT_TRUE(Judged(server_, "a", 5, 5));
  ASSERT_TRUE(Judged(server_, "b", 5, 5));
  EXPECT_EQ(server_.Incidents("a", audit::kDoctorRule).size(), 1u);
  EXPECT_TRUE(server_.Incidents("b", audit::kDoctorRule).empty());
}

TEST(Ingest, ARankThatDiesIsClosedOverAfterItsGrace) {
  Plumbd server({"--grace", "0.3"});
  const v1::Source rank0 = SourceOf("dying", 0, 2), rank1 = SourceOf("dying", 1, 2);
  AgentStream alive(server, 30, {rank0});
  {
    AgentStream dying(server, 31, {rank1});
    dying.Send(ScalarStep(rank1, 0), 1);
    ASSERT_TRUE(dying.Acknowledged(1));
    dying.Break();
  }
  alive.Send(LeakingStep(rank0, 0), 1);
  alive.Send(LeakingStep(rank0, 1), 2);
  ASSERT_TRUE(Judged(server, "dying", 3, 1));
  const auto info = server.Run("dying");
  EXPECT_EQ(info->ranks_connected(), 1u);
  ASSERT_TRUE(HasIncident(server, "dying"));
}

TEST(Ingest, ARunWhoseRanksAllFinishedIsJudgedAsAWhole) {
  Plumbd server;
  const v1::Source source = SourceOf("whole");
  AgentStream agent(server, 32, {source});
  v1::Batch step = ScalarStep(source, 0);
  v1::Loss& loss = *step.add_losses();
  loss.set_cause("queue-full");
  loss.mutable_site()->set_layer("layers.0");
  loss.set_count(5);
  agent.Send(step, 1);
  agent.Send(Goodbye(source, 0), 2);
  EXPECT_TRUE(Eventually([&] { return !server.Incidents("whole", "meta/data-loss").empty(); }));
  EXPECT_EQ(server.Run("whole")->lost(), 5u);
  EXPECT_EQ(server.Run("whole")->ranks_finished(), 1u);
}

TEST(Ingest, AFullQueueStopsTheStreamsAndLosesNothing) {
  TempFolder folder;
  const std::string config = folder.File("plumbd.toml");
  FILE* file = std::fopen(config.c_str(), "w");
  std::fputs("[ingest]\nqueue_bytes = 1048576\n", file);
  std::fclose(file);
  Plumbd server({"--config", config});
  const v1::Source source = SourceOf("flood");
  AgentStream agent(server, 33, {source});
  // Each batch takes much longer to judge than to send; together they are many times the queue.
  constexpr int kBatches = 60;
  for (int i = 0; i < kBatches; ++i) {
    v1::Batch batch = LeakingStep(source, i);
    for (int n = 0; n < 40; ++n) {
      v1::Evidence& e = *batch.add_evidence();
      e = batch.evidence(0);
      e.mutable_site()->set_layer("layers." + std::to_string(n + 1));
    }
    ASSERT_TRUE(agent.Send(batch, static_cast<uint64_t>(i) + 1));
  }
  ASSERT_TRUE(Judged(server, "flood", kBatches * 41, kBatches - 1));
  EXPECT_EQ(server.Run("flood")->lost(), 0u);
  const v1::ServerInfo info = server.Info();
  EXPECT_GT(info.paused_reads(), 0u);  // otherwise the test would show nothing
  for (const auto& [cause, count] : info.dropped()) EXPECT_EQ(count, 0u) << cause;
  const auto incidents = server.Incidents("flood", audit::kDoctorRule);
  ASSERT_EQ(incidents.size(), 1u);
  EXPECT_EQ(incidents[0].count(), uint64_t{kBatches} * 41);
}

// If two ranks have a large backlog, the rank that is read first does not close the steps of the
// other.
TEST(Ingest, WhoIsFarAheadOfABacklogWaitsForIt) {
  Plumbd server;
  const v1::Source fast = SourceOf("race", 0, 2), slow = SourceOf("race", 1, 2);
  AgentStream ahead(server, 41, {fast}), after(server, 42, {slow});
  constexpr uint64_t kSteps = 200;
  const auto send = [](AgentStream* to, uint64_t id, const v1::Source& source, uint64_t step) {
    v1::AgentMessage message;
    message.mutable_backlog()->set_unsent_batches(kSteps - 1 - step);
    *message.mutable_batch() = ScalarStep(source, static_cast<int64_t>(step));
    message.mutable_batch()->set_stream_id(id);
    message.mutable_batch()->set_sequence(step + 1);
    ASSERT_TRUE(to->SendRaw(message));
  };
  send(&after, 42, slow, 0);
  ASSERT_TRUE(after.Acknowledged(1));
  for (uint64_t step = 0; step < kSteps; ++step) send(&ahead, 41, fast, step);
  v1::AgentMessage waiting;
  waiting.mutable_heartbeat()->set_stream_id(42);
  waiting.mutable_heartbeat()->set_any_step(true);
  waiting.mutable_heartbeat()->set_newest_step(kSteps - 1);
  waiting.mutable_heartbeat()->set_oldest_unsent_step(1);
  ASSERT_TRUE(Eventually([&] {
    after.SendRaw(waiting);
    return server.Info().stopped_ahead() > 0;
  }));
  EXPECT_LT(ahead.acknowledged(), 40u);
  for (uint64_t step = 1; step < kSteps; ++step) send(&after, 42, slow, step);
  EXPECT_TRUE(ahead.Acknowledged(kSteps));
  EXPECT_TRUE(after.Acknowledged(kSteps));
  ASSERT_TRUE(Judged(server, "race", 2 * kSteps, kSteps - 1));
  EXPECT_EQ(server.Run("race")->lost(), 0u);
}

}  // namespace
}  // namespace plumbline::test
