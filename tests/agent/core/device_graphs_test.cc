// Calls in CUDA graphs through the agent, over the fake device: the record holds the same bytes as
// with a direct call in each due step, and lost items are counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/agent/core/observed_tensors.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own
using ::testing::Each;
using ::testing::HasSubstr;

constexpr DLDevice kDevice = {kDLCUDA, 1};
void* Graph() { return Stream(9); }
void* Replays() { return Stream(3); }

// Captures the calls of `observed` on Graph() and returns their statuses.
std::vector<plumbline_status_t> Capture(TestRun* run, Observed* observed) {
  EXPECT_EQ(run->run().CaptureBegin(Replays()), PLUMBLINE_OK);
  g_fake->capture(Graph(), true);
  const auto statuses = observed->At(kCaptureStep);
  g_fake->capture(Graph(), false);
  return statuses;
}

std::vector<v1::Evidence> Items(const TempFolder& dir) {
  std::vector<v1::Evidence> items;
  for (const v1::Batch& batch : Batches(dir)) {
    items.insert(items.end(), batch.evidence().begin(), batch.evidence().end());
  }
  return items;
}

// 60 steps of a run whose cadence soon skips steps, with calls in due steps or with a graph that
// each step replays.
std::vector<std::string> Recorded(bool by_graph) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.traffic_bytes = 700;
  TestRun run(options);
  Observed observed(&run, by_graph ? kDevice : DLDevice{kDLCPU, 0}, Graph());
  if (by_graph) {
    EXPECT_THAT(Capture(&run, &observed), Each(PLUMBLINE_OK)) << observed.error.text;
  }
  int due = 0;
  for (int64_t step = 0; step < 60; ++step) {
    run.run().StepBegin(step);
    due += observed.due(step) ? 1 : 0;
    if (by_graph) {
      if (observed.due(step)) observed.Change(step);
      g_fake->replay(Graph(), Replays());
    } else if (observed.due(step)) {
      EXPECT_THAT(observed.At(step), Each(PLUMBLINE_OK));
    }
    run.run().StepEnd(step);
  }
  EXPECT_LT(due, 40);
  EXPECT_GT(due, 5);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK) << run.error();
  EXPECT_EQ(AccountOf(Batches(dir)).lost, 0u);
  std::vector<std::string> items;
  for (const v1::Evidence& e : Items(dir)) items.push_back(e.SerializeAsString());
  std::sort(items.begin(), items.end());
  return items;
}

TEST_F(Device, AGraphsEvidenceIsThatOfItsCallsByteForByte) {
  const auto calls = Recorded(false);
  const auto graph = Recorded(true);
  ASSERT_FALSE(calls.empty());
  EXPECT_EQ(graph, calls);
  EXPECT_EQ(g_fake->calls("measure_tensors") + g_fake->calls("check_updates"), 0u);
  EXPECT_EQ(g_fake->calls("capture_tensor"), 2u);
  EXPECT_EQ(Held(), 0u);
}

// Micro-batches: each replay is a separate call, numbered in order.
TEST_F(Device, EachReplayIsACall) {
  TestRun run(RecordOptions(dir_.path()));
  Observed observed(&run, kDevice, Graph());
  ASSERT_THAT(Capture(&run, &observed), Each(PLUMBLINE_OK)) << observed.error.text;
  for (int64_t step = 0; step < 4; ++step) {
    run.run().StepBegin(step);
    for (int64_t r = 0; r < 1 + step; ++r) g_fake->replay(Graph(), Replays());
    run.run().StepEnd(step);
    plumbline_error_t error{};
    EXPECT_EQ(run.run().Flush(60000, &error), PLUMBLINE_OK) << error.text;
  }
  g_fake->replay(Graph(), Replays());
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  std::map<int64_t, std::vector<uint32_t>> calls;
  std::map<int64_t, std::vector<uint64_t>> orders;
  for (const v1::Evidence& e : Items(dir_)) {
    if (e.has_update()) calls[e.step()].push_back(e.call());
    orders[e.step()].push_back(e.order());
    EXPECT_TRUE(e.call() == 0 || !(e.tensor().has_sample() || e.update().has_sample()));
  }
  ASSERT_EQ(calls.size(), 4u);
  for (int64_t step = 0; step < 4; ++step) {
    std::vector<uint32_t> expected(static_cast<size_t>(step) + 1);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<uint32_t>(i);
    EXPECT_EQ(calls[step], expected);
    auto& order = orders[step];
    std::sort(order.begin(), order.end());
    EXPECT_EQ(std::adjacent_find(order.begin(), order.end()), order.end());
    EXPECT_EQ(order.size(), 3 * expected.size());
  }
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.lost, 0u);
  EXPECT_EQ(account.complete_through, 3);
}

// A site that is called directly and by a graph in one step: all call numbers are distinct.
TEST_F(Device, CallsNextToAGraphHaveNumbersOfTheirOwn) {
  TestRun run(RecordOptions(dir_.path()));
  Observed observed(&run, kDevice, Graph());
  ASSERT_THAT(Capture(&run, &observed), Each(PLUMBLINE_OK));
  run.run().StepBegin(0);
  g_fake->replay(Graph(), Replays());
  EXPECT_THAT(observed.At(0), Each(PLUMBLINE_OK));
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  std::map<std::string, std::vector<uint32_t>> calls;
  for (const v1::Evidence& e : Items(dir_)) {
    calls[e.site().layer() + e.site().op()].push_back(e.call());
  }
  ASSERT_EQ(calls.size(), 3u);
  for (const auto& [site, numbers] : calls) {
    ASSERT_EQ(numbers.size(), 2u);
    EXPECT_NE(numbers[0], numbers[1]);
  }
}

TEST_F(Device, OnlyDeviceTensorsAreCaptured) {
  TestRun run(RecordOptions(dir_.path()));
  Observed host(&run, {kDLCPU, 0}, Graph());
  EXPECT_THAT(Capture(&run, &host), Each(PLUMBLINE_NOT_DUE));
  Observed outside(&run, kDevice, Stream(12));
  EXPECT_THAT(outside.At(kCaptureStep), Each(PLUMBLINE_INVALID_ARGUMENT));
  EXPECT_THAT(outside.error.text, HasSubstr("expected a stream that is being captured"));
  run.run().StepBegin(0);
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.items, 0u);
  EXPECT_EQ(account.lost_by_cause.at("invalid"), 3u);
}

TEST_F(Device, AStepThatFindsNoRoomIsCounted) {
  AgentOptions options = RecordOptions(dir_.path());
  options.device_ring_bytes = 64 << 10;
  TestRun run(options);
  Observed observed(&run, kDevice, Graph());
  ASSERT_THAT(Capture(&run, &observed), Each(PLUMBLINE_OK));
  g_fake->hold(true);
  for (int64_t step = 0; step < 20; ++step) {
    run.run().StepBegin(step);
    g_fake->replay(Graph(), Replays());
    run.run().StepEnd(step);
  }
  g_fake->hold(false);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  const uint64_t lost = account.lost_by_cause.at("device-ring-full");
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(account.items + 3 * lost, 60u) << "three calls a step, lost together";
  EXPECT_EQ(account.complete_through, 19);
}

TEST_F(Device, ReplaysWithoutRoomAreCounted) {
  TestRun run(RecordOptions(dir_.path()));
  Observed observed(&run, kDevice, Graph());
  ASSERT_THAT(Capture(&run, &observed), Each(PLUMBLINE_OK));
  run.run().StepBegin(0);
  for (int r = 0; r < 11; ++r) g_fake->replay(Graph(), Replays());
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.items, 24u);
  EXPECT_EQ(account.lost_by_cause.at("device-ring-full"), 9u);
}

// The run is closed within a step, also while the device is still working on it.
TEST_F(Device, ClosingWithinAStep) {
  for (const bool hold : {false, true}) {
    SCOPED_TRACE(hold);
    TempFolder dir;
    TestRun run(RecordOptions(dir.path()));
    Observed observed(&run, kDevice, Graph());
    ASSERT_THAT(Capture(&run, &observed), Each(PLUMBLINE_OK));
    run.run().StepBegin(0);
    g_fake->hold(hold);
    g_fake->replay(Graph(), Replays());
    EXPECT_EQ(run.Close(), PLUMBLINE_OK) << run.error();
    const Account account = AccountOf(Batches(dir));
    EXPECT_EQ(account.items, hold ? 0u : 3u);
    if (hold) {
      EXPECT_EQ(account.lost_by_cause.at("device-unfinished"), 3u);
    }
    g_fake->hold(false);
    g_fake->replay(Graph(), Replays());  // the graph outlives the run
  }
}

// If a trainer replays the graph outside of a step, it gets one message and continues.
TEST_F(Device, AReplayDuringItsStepEndsTheMeasuring) {
  TestRun run(RecordOptions(dir_.path()));
  Observed observed(&run, kDevice, Graph());
  ASSERT_THAT(Capture(&run, &observed), Each(PLUMBLINE_OK));
  ::testing::internal::CaptureStderr();
  run.run().StepBegin(0);
  g_fake->hold(true);
  g_fake->replay(Graph(), Stream(77));
  g_fake->advance(1);
  run.run().StepEnd(0);
  g_fake->advance(1);
  g_fake->hold(false);
  plumbline_error_t error{};
  EXPECT_EQ(run.run().Flush(60000, &error), PLUMBLINE_OK) << error.text;
  for (int64_t step = 1; step < 5; ++step) {
    run.run().StepBegin(step);
    g_fake->replay(Graph(), Replays());
    run.run().StepEnd(step);
  }
  ASSERT_EQ(run.Close(), PLUMBLINE_OK) << run.error();
  const std::string reported = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(reported, HasSubstr("a graph was replayed"));
  EXPECT_EQ(reported.find("a graph was replayed"), reported.rfind("a graph was replayed"));
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.items, 0u);
  EXPECT_EQ(account.lost_by_cause.at("device-error"), 3u + 4u);
}

}  // namespace
}  // namespace plumbline::agent
