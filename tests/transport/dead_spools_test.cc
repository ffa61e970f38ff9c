// Runs with a spool and a real server that stops and returns, and what is left of them when they
// are killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/agent/core/support.h"
#include "tests/support/process.h"
#include "transport/spool.h"
#include "transport/stream_sender.h"

namespace plumbline::transport {
namespace {

using namespace agent::testing;  // NOLINT: the tests' own
using std::chrono::milliseconds;

// A trainer with a spool, for tests that kill it.
class SpoolingProcess {
 public:
  SpoolingProcess(const std::string& server, const std::string& spool)
      : process_({PLUMBLINE_BINARY_DIR "/bin/transport_spooling_process", server, spool}) {}
  void WaitForStep(int64_t step) const {
    const std::string line = "\n" + std::to_string(step) + "\n";
    EXPECT_TRUE(
        test::Eventually([&] { return process_.output().find(line) != std::string::npos; }));
  }
  void Kill() {
    process_.Signal(SIGKILL);
    EXPECT_EQ(process_.Wait(), 128 + SIGKILL);
  }

 private:
  test::Process process_;
};

void Train(TestRun* run, RouterCall* call, int64_t first, int64_t steps) {
  for (int64_t step = first; step < first + steps; ++step) {
    run->run().StepBegin(step);
    EXPECT_EQ(run->Observe("layers.0", step, *call), PLUMBLINE_OK);
    EXPECT_EQ(run->run().Scalar(step, "loss", 1), PLUMBLINE_OK);
    run->run().StepEnd(step);
    if (step % 5 == 0) std::this_thread::sleep_for(milliseconds(1));
  }
}

// Expects that every complete step has its three observations, once.
void ExpectWholeSteps(const std::vector<v1::Batch>& batches, int64_t at_least) {
  ASSERT_FALSE(batches.empty());
  EXPECT_EQ(batches.front().sequence(), 1u);
  const Account account = AccountOf(batches);
  EXPECT_GE(account.complete_through, at_least);
  EXPECT_EQ(account.lost, 0u);
  std::map<int64_t, int> items;
  for (const v1::Batch& b : batches) {
    for (const v1::Evidence& e : b.evidence()) ++items[e.step()];
  }
  for (int64_t step = 0; step <= account.complete_through; ++step)
    EXPECT_EQ(items[step], 3) << step;
}

std::string DeadTarget() {
  RecordingServer server;
  const std::string target = server.target();
  server.Kill(true);
  return target;
}

StreamConfig ConfigFor(const std::string& target) {
  StreamConfig config;
  config.target = target;
  config.backoff_first_ms = 20;
  config.backoff_last_ms = 100;
  config.ack_timeout_ms = 500;
  return config;
}

// The memory queue is far too small for the batches made while the server is away.
TEST(SpooledRun, NothingIsLostWhileTheServerIsAway) {
  TempFolder dir;
  RecordingServer server;
  server.Kill(true);
  agent::AgentOptions options = ServerOptions(server.target());
  options.spool_dir = dir.path();
  options.queue_bytes = 30'000;
  options.queue_batches = 20;
  TestRun run(options);
  RouterCall call(64, 8, 2);
  plumbline_error_t error;
  for (int64_t step = 0; step < 400; ++step) {
    Train(&run, &call, step, 1);
    if (step % 5 == 0) run.run().Flush(0, &error);
  }
  server.Start();
  Train(&run, &call, 400, 50);
  EXPECT_EQ(run.Close(20000), PLUMBLINE_OK) << run.error();
  const Account account = AccountOf(server.Batches());
  EXPECT_EQ(account.items, 900u);
  EXPECT_EQ(account.lost + account.samples_lost, 0u);
  EXPECT_EQ(account.complete_through, 449);
  EXPECT_TRUE(account.finished);
  EXPECT_TRUE(FindSpools(dir.path()).empty()) << "nothing is owed";
}

TEST(SpooledRun, CloseStatesWhereTheRestIs) {
  TempFolder dir;
  agent::AgentOptions options = ServerOptions(DeadTarget());
  options.spool_dir = dir.path();
  TestRun run(options);
  RouterCall call(32, 8, 2);
  Train(&run, &call, 0, 20);
  // Waits until all is measured and nothing delivered: a close before that gives another error.
  plumbline_error_t error{};
  ASSERT_TRUE(test::Eventually([&] {
    run.run().Flush(50, &error);
    return std::string(error.text).find("has not acknowledged") != std::string::npos;
  }));
  EXPECT_EQ(run.Close(1000), PLUMBLINE_DEADLINE_EXCEEDED);
  EXPECT_THAT(run.error(), ::testing::HasSubstr("are kept in " + dir.path()));
  EXPECT_EQ(FindSpools(dir.path()).size(), 1u);
}

TEST(SpooledRun, ALaterProcessOfTheRankDeliversWhatAKilledOneLeft) {
  TempFolder dir;
  RecordingServer server;
  const std::string target = server.target();
  server.Kill(true);
  {
    SpoolingProcess trainer(target, dir.path());
    trainer.WaitForStep(300);
    trainer.Kill();
  }
  ASSERT_EQ(FindSpools(dir.path()).size(), 1u);
  const uint64_t dead = FindSpools(dir.path()).front().stream_id;
  server.Start();
  agent::AgentOptions options = ServerOptions(target);
  options.spool_dir = dir.path();
  options.attempt = 1;
  TestRun run(options);
  RouterCall call(32, 8, 2);
  Train(&run, &call, 0, 10);
  EXPECT_EQ(run.Close(30000), PLUMBLINE_OK) << run.error();
  const auto streams = server.Streams();
  ASSERT_EQ(streams.size(), 2u);
  ExpectWholeSteps(streams.at(dead), 100);  // the drain may be many steps late
  EXPECT_EQ(streams.at(dead).front().sources(0).attempt(), 0u);
  EXPECT_TRUE(FindSpools(dir.path()).empty());
}

// Killed while the server is up: what the server has is not sent twice, the rest arrives.
TEST(SpooledRun, AKillNextToALiveServerLosesNothingThatWasWritten) {
  TempFolder dir;
  ServerBehaviour slow;
  slow.ack_every = 1000;  // so that the process never knows what arrived
  RecordingServer server(slow);
  {
    SpoolingProcess trainer(server.target(), dir.path());
    trainer.WaitForStep(300);
    trainer.Kill();
  }
  EXPECT_EQ(DeliverDeadSpools({.dir = dir.path(),
                               .config = ConfigFor(server.target()),
                               .stopping = [] { return false; }}),
            0u);
  ExpectWholeSteps(server.Batches(), 100);
  EXPECT_TRUE(FindSpools(dir.path()).empty());
}

TEST(SpooledRun, TwoProcessesOfOneRankDoNotTouchEachOther) {
  TempFolder dir;
  RecordingServer server;
  const std::string target = server.target();
  server.Kill(true);
  SpoolingProcess first(target, dir.path()), second(target, dir.path());
  first.WaitForStep(50);
  second.WaitForStep(50);
  ASSERT_EQ(FindSpools(dir.path()).size(), 2u);
  server.Start();
  // Both are alive: a sender finds nothing to deliver.
  EXPECT_EQ(DeliverDeadSpools(
                {.dir = dir.path(), .config = ConfigFor(target), .stopping = [] { return false; }}),
            0u);
  first.WaitForStep(200);
  second.WaitForStep(200);
  first.Kill();
  second.Kill();
  EXPECT_EQ(DeliverDeadSpools(
                {.dir = dir.path(), .config = ConfigFor(target), .stopping = [] { return false; }}),
            0u);
  const auto streams = server.Streams();
  ASSERT_EQ(streams.size(), 2u);
  for (const auto& [id, batches] : streams) ExpectWholeSteps(batches, 60);
}

TEST(SpooledRun, OnlyTheSameRankOfTheSameRunIsTakenUp) {
  TempFolder dir;
  agent::AgentOptions options = ServerOptions(DeadTarget());
  options.spool_dir = dir.path();
  options.rank = 5;
  options.world_size = 8;
  {
    TestRun run(options);
    RouterCall call(32, 8, 2);
    Train(&run, &call, 0, 5);
    run.Close(200);
  }
  // Its threads may outlive a close with a short timeout, and hold the spool until they end.
  const auto left = FindSpools(dir.path());
  ASSERT_EQ(left.size(), 1u);
  ASSERT_TRUE(test::Eventually([&] { return Spool::Adopt(left[0].path, {}).ok(); }));
  RecordingServer server;
  v1::Source other;
  other.set_run("test");
  other.set_role(v1::ROLE_TRAINER);
  other.set_rank(4);
  DeadSpools dead_spools;
  dead_spools.dir = dir.path();
  dead_spools.config = ConfigFor(server.target());
  dead_spools.stopping = [] { return false; };
  dead_spools.of = other;
  DeliverDeadSpools(dead_spools);
  EXPECT_TRUE(server.Streams().empty());
  other.set_rank(5);
  other.set_run("another");
  dead_spools.of = other;
  DeliverDeadSpools(dead_spools);
  EXPECT_TRUE(server.Streams().empty());
  EXPECT_EQ(FindSpools(dir.path()).size(), 1u);
  dead_spools.of.reset();
  uint64_t reported = 0;
  dead_spools.report = [&](const Spool& spool, const absl::Status& status, uint64_t batches) {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(spool.source().rank(), 5u);
    reported += batches;
  };
  EXPECT_EQ(DeliverDeadSpools(dead_spools), 0u);
  EXPECT_EQ(server.Batches().size(), reported);
  EXPECT_EQ(AccountOf(server.Batches()).items, 10u);
}

}  // namespace
}  // namespace plumbline::transport
