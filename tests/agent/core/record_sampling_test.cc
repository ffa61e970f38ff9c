// Which steps of a run are due and which keep a sample: the same on every rank, within the budget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "agent/core/run/record_sink.h"
#include "tests/agent/core/support.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own

// The sampled steps are the same on every rank, and their average is within the budget.
TEST(Record, RanksSampleTheSameStepsWithinTheBudget) {
  TempFolder dir;
  constexpr int kRanks = 3;
  constexpr int64_t kSteps = 2048;
  std::vector<std::set<int64_t>> sampled(kRanks);
  RouterCall call(64, 8, 2);
  uint64_t sample_bytes = 0;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    AgentOptions options = RecordOptions(dir.path());
    options.rank = rank;
    options.world_size = kRanks;
    TestRun run(options);
    for (int64_t step = 0; step < kSteps; ++step) {
      run.run().StepBegin(step);
      for (const char* layer : {"a", "b", "c", "d"}) {
        ASSERT_TRUE(step == 0 || run.Due(layer, step));
        while (run.Observe(layer, step, call) == PLUMBLINE_DROPPED) {
          ADD_FAILURE() << "ring full";
        }
      }
      run.run().StepEnd(step);
      if (step % 64 == 0) {
        plumbline_error_t error;
        run.run().Flush(10000, &error);
      }
    }
    ASSERT_EQ(run.Close(), PLUMBLINE_OK);
    for (const auto& b : ReadRecord(RecordPath(dir.path(), v1::ROLE_TRAINER, rank, 0))) {
      for (const auto& e : b.evidence()) {
        if (!e.routing().has_sample()) continue;
        sampled[rank].insert(e.step());
        if (rank == 0 && e.step() > 1024) sample_bytes += e.routing().sample().ByteSizeLong();
      }
    }
  }
  EXPECT_EQ(sampled[0], sampled[1]);
  EXPECT_EQ(sampled[0], sampled[2]);
  EXPECT_TRUE(sampled[0].count(7));
  EXPECT_TRUE(sampled[0].count(1024));
  EXPECT_GT(sample_bytes, 0u);
  EXPECT_LE(static_cast<double>(sample_bytes) / (kSteps - 1024 - 1), 3072.0);
}

// A trainer that only makes observations costs more than its budget: fewer steps are due, and a
// series reports the change.
TEST(Record, TheGovernorThinsWhatCostsTooMuch) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.budget = 0.001;
  TestRun run(options);
  RouterCall call(256, 16, 2);
  run.RoutingSite("l");
  const auto start = std::chrono::steady_clock::now();
  uint64_t steps = 0, observed = 0;
  int64_t step = 0;
  const auto governed = [&] { return run.run().state().governor.stretch() > 1; };
  while (std::chrono::steady_clock::now() - start < std::chrono::seconds(30) && steps < 200) {
    run.run().StepBegin(step);
    if (run.Due("l", step)) {
      run.Observe("l", step, call);
      observed += governed();
    }
    steps += governed();
    run.run().StepEnd(step);
    ++step;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(governed());
  EXPECT_LE(observed, steps / 2 + 1);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  double stretch = 0;
  for (const auto& b : ReadRecord(FirstRecord(dir.path()))) {
    for (const auto& e : b.evidence()) {
      if (e.site().op() == kStretchSeries) stretch = e.scalar().value();
    }
  }
  EXPECT_GT(stretch, 1.0);
}

// The time that a binding spends around the calls also counts, although the calls cost nothing.
TEST(Record, TheGovernorCountsWhatTheCallerStates) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.budget = 0.9;
  TestRun run(options);
  const auto stretch = [&] { return run.run().state().governor.stretch(); };
  for (int64_t step = 0; stretch() == 1 && step < 3000; ++step) {
    run.run().StepBegin(step);
    run.run().Charge(100'000'000);  // in a step of a few milliseconds
    run.run().StepEnd(step);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GT(stretch(), 1u);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
}

TEST(Record, EachNthStepWhenRequested) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.every = 10;
  TestRun run(options);
  RouterCall call(8, 4, 1);
  run.RoutingSite("l");
  std::vector<int64_t> due;
  for (int64_t step = 0; step < 45; ++step) {
    run.run().StepBegin(step);
    if (run.Due("l", step)) {
      due.push_back(step);
      run.Observe("l", step, call);
    }
    run.run().StepEnd(step);
  }
  EXPECT_THAT(due, ::testing::ElementsAre(0, 10, 20, 30, 40));
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
}

}  // namespace
}  // namespace plumbline::agent
