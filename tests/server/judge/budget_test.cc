// Tests the memory limit of all runs together, and its effect on the runs that use most.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "server/process/memory_limit.h"
#include "tests/server/chaos_agents.h"
#include "tests/server/http_support.h"
#include "tests/server/judge/audited.h"
#include "tests/server/judge/made_room.h"

namespace plumbline::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(MemoryLimit, IsTheLeastOfTheHostAndItsGroups) {
  TempFolder root;
  root.Write("proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 1 kB\n");
  EXPECT_EQ(server::MemoryLimit(root.path()), 1024 * kMiB);
  root.Write("proc/self/cgroup", "0::/system.slice/plumbd.service\n");
  EXPECT_EQ(server::MemoryLimit(root.path()), 1024 * kMiB);
  root.Write("sys/fs/cgroup/system.slice/plumbd.service/memory.max", "max\n");
  root.Write("sys/fs/cgroup/system.slice/memory.max", "536870912\n");
  EXPECT_EQ(server::MemoryLimit(root.path()), 512 * kMiB);
  root.Write("sys/fs/cgroup/system.slice/plumbd.service/memory.max", "134217728\n");
  EXPECT_EQ(server::MemoryLimit(root.path()), 128 * kMiB);
}

TEST(MemoryLimit, OfAContainerAndOfAnOldKernel) {
  TempFolder root;
  root.Write("proc/meminfo", "MemTotal:       1048576 kB\n");
  root.Write("proc/self/cgroup", "0::/\n");
  root.Write("sys/fs/cgroup/memory.max", "268435456\n");
  EXPECT_EQ(server::MemoryLimit(root.path()), 256 * kMiB);
  root.Write("proc/self/cgroup", "3:cpu:/x\n2:memory:/docker/x\n");
  root.Write("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "67108864\n");
  EXPECT_EQ(server::MemoryLimit(root.path()), 64 * kMiB);
}

class Budget : public testing::Test {
 protected:
  void Start(const std::string& limits) {
    std::ofstream(folder_.File("plumbd.toml")) << "[limits]\n" << limits << "\n";
    server_ = std::make_unique<Plumbd>(
        std::vector<std::string>{"--data", folder_.File("data"), "--grace", "600", "--config",
                                 folder_.File("plumbd.toml"), "--http", "127.0.0.1:0"});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  void Kill() {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
  }

  // Returns a step that cannot close, because the other rank never comes. Counts about 440 bytes
  // per item.
  static v1::Batch OpenStep(const v1::Source& source, int64_t step, int items) {
    v1::Batch batch = BatchOf(source);
    for (int i = 0; i < items; ++i) AddScalar(&batch, "op" + std::to_string(i), step, 1.0);
    AddProgress(&batch, step);
    return batch;
  }
  bool Send(const std::string& run, uint64_t stream, int64_t steps, int items) const {
    const v1::Source source = SourceOf(run, 0, 2);
    AgentStream agent(*server_, stream, {source});
    for (int64_t step = 1; step <= steps; ++step)
      agent.Send(OpenStep(source, step, items), static_cast<uint64_t>(step));
    return agent.Acknowledged(static_cast<uint64_t>(steps));
  }
  std::vector<v1::JudgeEvent> MadeRoom() const { return test::MadeRoom(folder_.File("data")); }
  bool Judged(const std::string& run, int64_t step) const {
    const auto info = server_->Run(run);
    return info && info->newest_step() == step;
  }
  double Metric(const std::string& name) const {
    // it is reported from time to time
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const std::string text = "\n" + HttpAnswer(HttpAddress(*server_), "/metrics");
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }
  // Returns true once everything in the journal has been judged.
  bool Settled() const {
    return Eventually([&] { return !server_->Info().catching_up(); });
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
};

TEST_F(Budget, WhoHoldsMostClosesItsOldestStepsAndARestartDoesTheSame) {
  Start("open_bytes = 16_777_216");
  ASSERT_TRUE(Send("small", 1, 4, 100));
  ASSERT_TRUE(Send("large", 2, 30, 3000));  // about 40 MB
  ASSERT_TRUE(Eventually([&] { return Judged("large", 30); }));
  const auto made = MadeRoom();
  ASSERT_FALSE(made.empty());
  EXPECT_LE(Metric("plumbline_open_step_bytes"), 16.0 * kMiB);
  EXPECT_GT(Metric("plumbline_open_step_bytes"), 8.0 * kMiB);
  for (const v1::JudgeEvent& event : made) {
    EXPECT_EQ(event.make_room().run(), "large");
    EXPECT_LE(event.make_room().bytes(), 16 * kMiB);
  }
  const Findings found = FindingsOf(*server_);
  EXPECT_EQ(found, FindingsOfJournal(folder_.File("data") + "/journal"));
  Kill();

  // Without a checkpoint everything is judged again, and no new decision is made.
  Start("open_bytes = 16_777_216");
  ASSERT_TRUE(Settled());
  EXPECT_EQ(MadeRoom().size(), made.size());
  EXPECT_LE(Metric("plumbline_open_step_bytes"), 16.0 * kMiB);
  EXPECT_EQ(FindingsOf(*server_), found);
  EXPECT_FALSE(server_->Run("large")->has_quarantined());
}

// Steps that were closed for lack of memory are in the journal, so an audit of the stored run
// closes the same steps. Rank 1, which continues too late, is late there too, and the audit joins
// only the evidence that was joined here.
TEST_F(Budget, AnAuditOfARunThatMadeRoomFindsTheSame) {
  Start("open_bytes = 16_777_216");
  constexpr int64_t kSteps = 30;
  uint64_t sequence[2] = {0, 0};
  std::unique_ptr<AgentStream> agents[2];
  for (uint32_t rank : {0u, 1u}) {
    const v1::Source source = SourceOf("large", rank, 2);
    agents[rank] =
        std::make_unique<AgentStream>(*server_, 10 + rank, std::vector<v1::Source>{source});
    ASSERT_TRUE(agents[rank]->Welcomed());
    agents[rank]->Send(OpenStep(source, 1, 5), ++sequence[rank]);
    ASSERT_TRUE(agents[rank]->Acknowledged(1));
  }
  for (uint32_t rank : {0u, 1u}) {
    const v1::Source source = SourceOf("large", rank, 2);
    for (int64_t step = 2; step <= kSteps; ++step) {
      v1::Batch batch = OpenStep(source, step, rank == 0 ? 3000 : 5);
      const v1::Batch leak = LeakingStep(source, step, "layers." + std::to_string(step % 4));
      batch.mutable_evidence()->MergeFrom(leak.evidence());
      agents[rank]->Send(batch, ++sequence[rank]);
    }
    ASSERT_TRUE(agents[rank]->Acknowledged(sequence[rank]));
    ASSERT_TRUE(Eventually([&] { return Judged("large", kSteps); }));
    ASSERT_THAT(MadeRoom(), testing::Not(testing::IsEmpty()));
  }
  for (uint32_t rank : {0u, 1u}) {
    agents[rank]->Send(Goodbye(SourceOf("large", rank, 2), kSteps), ++sequence[rank]);
    ASSERT_TRUE(agents[rank]->Acknowledged(sequence[rank]));
  }
  ASSERT_TRUE(IsOver(*server_, "large"));
  const FoundIncidents live = FoundLive(*server_, "large");
  EXPECT_TRUE(HasCause(live, "late-no-room"));
  EXPECT_GE(live.size(), 2u) << "leaks too";
  EXPECT_EQ(FoundByAudit(*server_, "large"), live);
  Kill();
  std::filesystem::remove_all(folder_.File("data/checkpoint"));
  Start("open_bytes = 16_777_216");
  ASSERT_TRUE(Settled());
  EXPECT_TRUE(Eventually([&] { return FoundLive(*server_, "large") == live; }));
  EXPECT_EQ(FoundByAudit(*server_, "large"), live);
}

// A journal that was written with a higher limit: no event of it frees memory.
TEST_F(Budget, ABoundThatWasLoweredHoldsInAReplayToo) {
  Start("open_bytes = 1_073_741_824");
  ASSERT_TRUE(Send("large", 2, 30, 3000));
  ASSERT_TRUE(Eventually([&] { return Judged("large", 30); }));
  EXPECT_THAT(MadeRoom(), testing::IsEmpty());
  EXPECT_GT(Metric("plumbline_open_step_bytes"), 32.0 * kMiB);
  Kill();
  Start("open_bytes = 16_777_216");
  ASSERT_TRUE(Settled());
  EXPECT_LE(Metric("plumbline_open_step_bytes"), 16.0 * kMiB);
  EXPECT_THAT(MadeRoom(), testing::Not(testing::IsEmpty()));
  EXPECT_TRUE(Send("small", 1, 4, 100));
}

}  // namespace
}  // namespace plumbline::test
