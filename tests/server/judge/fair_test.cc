// No run waits for the evidence of another run: tests a quiet run next to hostile ones.
// PLUMB_LONG=1: measures the time of its findings next to each of the costliest kinds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "server/journal/checkpoint_file.h"
#include "server/judge/quarantine.h"
#include "tests/server/chaos_agents.h"

namespace plumbline::test {
namespace {

using Clock = std::chrono::steady_clock;

bool Long() {
  const char* value = std::getenv("PLUMB_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

// Returns a step whose routers all leak: each takes the judge at least some tenth of a millisecond.
v1::Batch HeavyStep(const v1::Source& source, int64_t step, int routers) {
  v1::Batch batch = LeakingStep(source, step, "layers.0");
  for (int i = 1; i < routers; ++i) {
    *batch.add_evidence() = batch.evidence(0);
    batch.mutable_evidence(i)->mutable_site()->set_layer("layers." + std::to_string(i));
  }
  return batch;
}

class Fair : public testing::Test {
 protected:
  void Start(const char* checkpoint_seconds = "0.05") {
    std::ofstream(folder_.File("plumbd.toml"))
        << "[checkpoint]\nseconds = " << checkpoint_seconds << "\n[ingest]\nack_seconds = 0.02\n";
    server_ = std::make_unique<Plumbd>(std::vector<std::string>{
        "--data", folder_.File("data"), "--grace", "600", "--config", folder_.File("plumbd.toml")});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  void Kill() {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
  }
  void TearDown() override {
    if (HasFailure() && server_)
      ADD_FAILURE() << "plumbd printed:\n" << server_->process().errors();
  }
  int64_t ClosedStep(const std::string& run) const {
    const auto info = server_->Run(run);
    return info ? info->closed_step() : -1;
  }
  bool Judged(const std::string& run, int64_t step) const {
    return Eventually([&] { return ClosedStep(run) == step; });
  }
  bool Found(const std::string& run) const {
    return !server_->Incidents(run, "causality/moe-future-leak").empty();
  }
  // Sends steps `first` to `last` of a heavy run; returns true if they are acknowledged.
  bool SendHeavy(const std::string& run, uint64_t stream, uint64_t first, uint64_t last,
                 int routers = kRouters) const {
    const v1::Source source = SourceOf(run);
    AgentStream agent(*server_, stream, {source}, first);
    for (uint64_t step = first; step <= last; ++step)
      agent.Send(HeavyStep(source, static_cast<int64_t>(step), routers), step);
    return agent.Acknowledged(last);
  }
  bool SendQuiet(const std::string& run, uint64_t stream, uint64_t first, uint64_t last) const {
    const v1::Source source = SourceOf(run);
    AgentStream agent(*server_, stream, {source}, first);
    for (uint64_t step = first; step <= last; ++step)
      agent.Send(LeakingStep(source, static_cast<int64_t>(step)), step);
    return agent.Acknowledged(last);
  }
  void ExpectFindingsOfAnAudit() const {
    const Findings expected = FindingsOfJournal(folder_.File("data") + "/journal");
    Findings found;
    EXPECT_TRUE(Eventually([&] {
      found = FindingsOf(*server_);
      return found == expected;
    })) << found.size()
        << " findings, expected " << expected.size();
    EXPECT_GT(expected.size(), 0u);
  }
  // Returns true if a checkpoint has a run that is further than others.
  bool SomebodyIsAhead() const {
    const auto names = server::ListCheckpoints(folder_.File("data") + "/checkpoint");
    if (!names.ok()) return false;
    return std::any_of(names->begin(), names->end(), [](const server::CheckpointName& name) {
      const auto checkpoint = server::ReadCheckpoint(name.path);
      return checkpoint.ok() && checkpoint->parts.contains("ahead");
    });
  }

  static constexpr int kRouters = 60;  // an incident lists 64 of its findings
  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
};

// Tests the order of events, not times: the quiet run, which sends last, has its finding while most
// batches that were acknowledged earlier still wait.
TEST_F(Fair, AQuietRunIsJudgedBeforeWhatOthersHavePiledUp) {
  Start();
  constexpr uint64_t kSteps = 20;
  for (uint64_t stream = 1; stream <= 3; ++stream)
    ASSERT_TRUE(SendHeavy("heavy" + std::to_string(stream), stream, 1, kSteps));
  ASSERT_TRUE(SendQuiet("quiet", 9, 1, 1));
  ASSERT_TRUE(Eventually([&] { return Found("quiet"); }));
  int64_t closed = 0;
  for (uint64_t stream = 1; stream <= 3; ++stream)
    closed += std::max<int64_t>(0, ClosedStep("heavy" + std::to_string(stream)));
  EXPECT_LT(closed, static_cast<int64_t>(3 * kSteps)) << "all of it went first";
  for (uint64_t stream = 1; stream <= 3; ++stream)
    EXPECT_TRUE(Judged("heavy" + std::to_string(stream), kSteps));
  ExpectFindingsOfAnAudit();
}

// Killed repeatedly with several runs in flight and checkpoints in which some runs are further than
// others: the findings equal those of an audit, and no run is put into quarantine because of the
// kills.
TEST_F(Fair, KilledWithSeveralRunsInFlightItGoesOnAsIfNothingHadHappened) {
  Start();
  uint64_t step = 0;
  bool ahead = false;
  constexpr uint64_t kMore = 60;
  constexpr int kFew = 4;  // routers: so that a checkpoint is taken between entries
  const int rounds = Long() ? 30 : 4;
  // On a busy machine a round may be judged completely before the test has looked. Then another
  // round follows.
  const int most = rounds + 20;
  for (int round = 0; round < rounds || (!ahead && round < most); ++round) {
    for (uint64_t stream = 1; stream <= 3; ++stream)
      ASSERT_TRUE(
          SendHeavy("heavy" + std::to_string(stream), stream, step + 1, step + kMore, kFew));
    ASSERT_TRUE(SendQuiet("quiet", 9, step + 1, step + kMore));
    step += kMore;
    if (round % 2 == 0) {
      const auto until =
          std::chrono::steady_clock::now() + std::chrono::seconds(ahead || round < 2 ? 3 : 8);
      bool now = false;
      while (!(now = SomebodyIsAhead()) && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ahead |= now;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20 * (round % 7)));
    }
    Kill();
    Start();
  }
  EXPECT_TRUE(ahead) << "no checkpoint was taken while a run was further than others";
  for (const char* run : {"heavy1", "heavy2", "heavy3", "quiet"}) {
    EXPECT_TRUE(Judged(run, static_cast<int64_t>(step))) << run;
    EXPECT_FALSE(server_->Run(run)->has_quarantined()) << run;
  }
  ExpectFindingsOfAnAudit();
}

// Two streams, each with batches of a separate run and of a shared one: the tied runs are judged in
// the journal's order.
TEST_F(Fair, RunsThatShareStreamsAreJudgedAsAnAuditDoes) {
  Start();
  const v1::Source own[] = {SourceOf("one"), SourceOf("two")};
  const v1::Source shared[] = {SourceOf("shared", 0, 2), SourceOf("shared", 1, 2)};
  std::vector<std::unique_ptr<AgentStream>> agents;
  for (size_t i = 0; i < 2; ++i)
    agents.push_back(
        std::make_unique<AgentStream>(*server_, i + 1, std::vector<v1::Source>{own[i], shared[i]}));
  constexpr int64_t kSteps = 6;
  for (int64_t step = 1; step <= kSteps; ++step) {
    for (size_t i = 0; i < 2; ++i) {
      const auto sequence = static_cast<uint64_t>(2 * step - 1);
      agents[i]->Send(HeavyStep(own[i], step, kRouters / 4), sequence);
      agents[i]->Send(LeakingStep(shared[i], step), sequence + 1);
    }
  }
  for (auto& agent : agents) ASSERT_TRUE(agent->Acknowledged(2 * kSteps));
  for (const char* run : {"one", "two", "shared"}) EXPECT_TRUE(Judged(run, kSteps)) << run;
  ExpectFindingsOfAnAudit();
}

// ---- times -----------------------------------------------------------------------------------

struct Kind {
  const char* name;
  v1::Batch (*make)(const v1::Source& source, int64_t step);
  int runs;
  const char* checkpoint_seconds = "60";
};

v1::Batch Routers(const v1::Source& source, int64_t step) { return HeavyStep(source, step, 1000); }

v1::Batch Scalars(const v1::Source& source, int64_t step) {
  v1::Batch batch = BatchOf(source);
  for (int i = 0; i < 50'000; ++i) AddScalar(&batch, "op" + std::to_string(i % 5000), step, 1.0);
  AddProgress(&batch, step);
  return batch;
}

class FairTimes : public Fair, public testing::WithParamInterface<Kind> {};

TEST_P(FairTimes, FromAcknowledgedToFound) {
  const Kind& kind = GetParam();
  Start(kind.checkpoint_seconds);
  std::atomic<bool> stop{false};
  std::vector<std::thread> hostile;
  for (int run = 0; run < kind.runs; ++run) {
    hostile.emplace_back([&, run] {
      const v1::Source source = SourceOf("hostile" + std::to_string(run));
      AgentStream agent(*server_, static_cast<uint64_t>(run) + 1, {source});
      for (int64_t step = 1; !stop; ++step) {
        if (!agent.Send(kind.make(source, step), static_cast<uint64_t>(step))) break;
        while (!stop && agent.acknowledged() + 20 < static_cast<uint64_t>(step))
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::seconds(2));
  std::vector<double> took;
  for (int i = 0; i < 12; ++i) {
    const std::string run = "quiet" + std::to_string(i);
    const v1::Source source = SourceOf(run);
    AgentStream agent(*server_, 1000 + static_cast<uint64_t>(i), {source});
    agent.Send(LeakingStep(source, 1), 1);
    ASSERT_TRUE(agent.Acknowledged(1));
    const auto start = Clock::now();
    while (!Found(run) && Clock::now() - start < std::chrono::seconds(30))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    took.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  stop = true;
  for (std::thread& thread : hostile) thread.join();
  std::sort(took.begin(), took.end());
  std::printf(
      "%d x %s, a checkpoint each %s s: found after %.3f s in the middle, %.3f s the slowest "
      "of %zu\n",
      kind.runs, kind.name, kind.checkpoint_seconds, took[took.size() / 2], took.back(),
      took.size());
  EXPECT_LT(took.back(), 0.2);
}

// These tests measure times, so they run only in the long form.
std::vector<Kind> KindsToTime() {
  if (!Long()) return {};
  return {{"nothing", Routers, 0},         {"routers", Routers, 1},
          {"scalars", Scalars, 1},         {"routers", Routers, 3},
          {"routers", Routers, 1, "0.05"}, {"routers", Routers, 3, "0.05"}};
}

INSTANTIATE_TEST_SUITE_P(Kinds, FairTimes, testing::ValuesIn(KindsToTime()));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FairTimes);

}  // namespace
}  // namespace plumbline::test
