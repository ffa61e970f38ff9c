// Backups of a server that meanwhile takes evidence, packs, deletes and is killed. Everything that
// was acknowledged before a backup began must be in the store of the restored server, and its
// findings must equal those of an uninterrupted engine. PLUMB_LONG=1: 60 rounds.
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include "server/journal/segment_rewrite.h"
#include "server/journal/segments.h"
#include "tests/server/backup/fixture.h"
#include "tests/server/chaos_agents.h"

namespace plumbline::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

constexpr uint32_t kRanks = 3;

bool Long() {
  const char* value = std::getenv("PLUMB_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

using Losses = std::map<std::pair<uint32_t, int64_t>, double>;  // rank, step

// Returns the values of the loss in the store of `server`.
Losses StoredLosses(const Plumbd& server) {
  grpc::ClientContext context;
  v1::QuerySeriesRequest request;
  request.set_run("chaos");
  request.set_series("*loss");
  request.set_max_cells(1'000'000);
  v1::QuerySeriesResponse response;
  Losses out;
  const auto status =
      v1::Query::NewStub(server.Channel())->QuerySeries(&context, request, &response);
  if (!status.ok()) return out;
  for (const v1::SeriesColumns& series : response.series()) {
    if (series.site().op() != "loss") continue;
    for (int r = 0; r < series.rank_size(); ++r) {
      for (int s = 0; s < series.step_size(); ++s) {
        const int cell = r * series.step_size() + s;
        const auto byte = static_cast<size_t>(cell / 8);
        if (byte < series.absent().size() && (series.absent()[byte] >> (cell % 8) & 1) != 0)
          continue;
        out[{series.rank(r), series.step(s)}] = series.mean(cell);
      }
    }
  }
  return out;
}

class BackupLoadTest : public BackupTest {
 protected:
  void SetUp() override {
    config_ = folder_.Write(
        "plumbd.toml",
        "[journal]\nsync = \"never\"\nsegment_bytes = 16384\n[checkpoint]\nseconds = 0.05\n"
        "[ingest]\nack_seconds = 0.02\n");
  }
  void StartServer() { server_ = Start(Data(), {"--config", config_, "--grace", "30"}); }
  void Kill() {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
    for (auto& agent : agents_) agent->Break();
  }
  void Act() {
    for (auto& agent : agents_) agent->Act(*server_);
    std::this_thread::sleep_for(milliseconds(1));
  }
  std::vector<uint64_t> Acknowledged() {
    std::vector<uint64_t> out;
    for (auto& agent : agents_) {
      agent->NoteAcknowledged();
      out.push_back(agent->acknowledged());
    }
    return out;
  }
  // Checks that everything acknowledged to each agent at that time is there, with all findings.
  void CheckRestored(const std::string& data, const std::vector<uint64_t>& acknowledged) {
    const auto held = BatchesOfJournal(data + "/journal");
    const Findings expected = FindingsOfJournal(data + "/journal");
    const auto server = Start(data, {"--config", config_, "--grace", "0.3"});
    Losses losses;
    for (size_t i = 0; i < agents_.size(); ++i) {
      const ChaosAgent& agent = *agents_[i];
      for (uint64_t s = 1; s <= acknowledged[i]; ++s) {
        ASSERT_TRUE(held.contains(agent.stream_id()));
        ASSERT_TRUE(held.at(agent.stream_id()).contains(s)) << "batch " << s << " is missing";
        ASSERT_EQ(held.at(agent.stream_id()).at(s).at(0), agent.batch(s).SerializeAsString());
        for (const v1::Evidence& e : agent.batch(s).evidence()) {
          if (e.site().op() == "loss")
            losses[{static_cast<uint32_t>(i), e.step()}] = e.scalar().value();
        }
      }
    }
    Losses stored;
    EXPECT_TRUE(Eventually([&] {
      stored = StoredLosses(*server);
      return std::includes(stored.begin(), stored.end(), losses.begin(), losses.end());
    })) << stored.size()
        << " values in the store, expected " << losses.size();
    Findings found;
    EXPECT_TRUE(Eventually([&] {
      found = FindingsOf(*server);
      return found == expected;
    })) << found.size()
        << " findings, expected " << expected.size();
    EXPECT_THAT(server->process().errors(), Not(HasSubstr("are lost")));
  }

  std::mt19937 random_{11};
  std::string config_;
  std::unique_ptr<Plumbd> server_;
  std::vector<std::unique_ptr<ChaosAgent>> agents_;
};

TEST_F(BackupLoadTest, WhatWasAcknowledgedBeforeItBeganIsInTheRestoredServer) {
  const int rounds = Long() ? 60 : 2;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    agents_.push_back(std::make_unique<ChaosAgent>(100 + rank, SourceOf("chaos", rank, kRanks),
                                                   400 * rounds, rank, static_cast<Age>(rank)));
  }
  StartServer();
  size_t entries_meanwhile = 0;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    for (auto end = 40 + random_() % 60; end > 0; --end) Act();
    const std::vector<uint64_t> before = Acknowledged();
    const std::string data = folder_.File("restored");
    {
      Process backup(BackupCommand(Dir()));
      const bool kill = round % 2 == 1;  // the server dies during the copy
      const auto kill_at = std::chrono::steady_clock::now() + milliseconds(random_() % 40);
      bool killed = false;
      while (backup.running()) {
        if (kill && !killed && std::chrono::steady_clock::now() > kill_at) {
          Kill();
          killed = true;
        }
        if (!killed) Act();
      }
      ASSERT_EQ(backup.Wait(), 0) << backup.errors();
      EXPECT_THAT(backup.output(), HasSubstr("checked"));
      if (!killed) {
        const auto after = Acknowledged();
        for (size_t i = 0; i < after.size(); ++i) entries_meanwhile += after[i] - before[i];
        Kill();
      }
    }
    const Ended restored = Restore(Dir(), data);
    ASSERT_EQ(restored.status, 0) << restored.errors;
    CheckRestored(data, before);
    std::filesystem::remove_all(data);
    StartServer();
  }
  EXPECT_GT(entries_meanwhile, 0u);  // ingest continued
}

// Every few milliseconds a segment is begun, packed or removed, and a checkpoint replaced.
TEST_F(BackupLoadTest, RetentionAndPackingMeanwhileTakeNothingOfIt) {
  const std::string busy = folder_.Write(
      "busy.toml",
      "[journal]\nsync = \"never\"\nsegment_bytes = 4096\ncommit_bytes = 1\nkeep_bytes = 60000\n"
      "[checkpoint]\nseconds = 0.02\nbytes = 4096\n[ingest]\nack_seconds = 0.02\n");
  const auto server = Start(Data(), {"--config", busy});
  Send(*server, 1, 300);
  std::atomic<bool> stop = false;
  std::thread sender([&] {
    const v1::Source other = SourceOf("other");
    AgentStream agent(*server, 6, {other});
    for (uint64_t step = 1; !stop; ++step) {
      agent.Send(ScalarStep(other, static_cast<int64_t>(step)), step);
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  });
  const int rounds = Long() ? 60 : 5;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const Ended backup = Backup(Dir());
    EXPECT_EQ(backup.status, 0) << backup.errors;
    const std::string data = folder_.File("restored");
    const Ended restored = Restore(Dir(), data);
    EXPECT_EQ(restored.status, 0) << restored.errors;
    const auto second = Start(data, {"--config", busy});
    EXPECT_TRUE(Eventually([&] {
      const auto run = second->Run("run");
      return run && run->closed_step() == 300;
    }));
    EXPECT_THAT(second->process().errors(), Not(HasSubstr("are lost")));
    EXPECT_THAT(second->process().errors(), Not(HasSubstr("rules start from the beginning")));
    second->process().Signal(SIGKILL);
    second->process().Wait();
    std::filesystem::remove_all(data);
  }
  stop = true;
  sender.join();
  // Part of the journal was removed meanwhile, otherwise nothing was tested.
  EXPECT_GT(server::ListSegments(Data() + "/journal")->front().first, 1u);
}

}  // namespace
}  // namespace plumbline::test
