// Tensors and updates of a device that a thread observes together, through the agent and over the
// fake: the record holds the same bytes as with separate launches, in fewer launches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/agent/core/observed_model.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own

uint64_t Launches() {
  return g_fake->calls("measure_tensors") + g_fake->calls("check_updates") +
         g_fake->calls("gather");
}

struct Recorded {
  std::vector<std::string> items;
  uint64_t launches = 0;
};

// 20 steps, some of them sampled.
Recorded Record(DLDevice device, bool together, int tensors, int updates, int streams) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.traffic_bytes = 20000;
  TestRun run(options);
  Model model(&run, device, tensors, updates, streams);
  Around calls{&model, &run, together};
  const uint64_t before = Launches();
  Recorded recorded;
  recorded.items = ItemsOfTwentySteps(&run, dir, &calls, [&](int64_t step) {
    model.weight(0).values[0] = static_cast<float>(step);
  });
  recorded.launches = Launches() - before;
  return recorded;
}

TEST_F(Device, TogetherTheRecordIsTheSameByteForByte) {
  const Recorded host = Record({kDLCPU, 0}, true, 40, 12, 1);
  EXPECT_EQ(host.launches, 0u);
  EXPECT_EQ(host.items.size(), 20u * 52);
  for (const int streams : {1, 3, 4}) {
    SCOPED_TRACE(streams);
    const Recorded alone = Record({kDLCUDA, 1}, false, 40, 12, streams);
    const Recorded together = Record({kDLCUDA, 1}, true, 40, 12, streams);
    EXPECT_TRUE(alone.items == host.items);
    EXPECT_TRUE(together.items == host.items);
    EXPECT_EQ(alone.launches, 20u * 52);
    EXPECT_LT(together.launches, alone.launches);
  }
  EXPECT_EQ(Held(), 0u);
}

// A step with 64 tensors and an update of each: figures, and elements in a step that keeps them.
TEST_F(Device, LaunchesOfAStepAreCounted) {
  for (const bool sampled : {false, true}) {
    SCOPED_TRACE(sampled);
    TempFolder dir;
    AgentOptions options = RecordOptions(dir.path());
    options.traffic_bytes = 1;
    TestRun run(options);
    Model model(&run, {kDLCUDA, 0}, 64, 64);
    uint64_t launches[2] = {};
    // The first steps are sampled at any traffic.
    const int64_t from = sampled ? 0 : 40;
    int64_t step = 0;
    for (; step < from; ++step) {
      run.run().StepBegin(step);
      run.run().StepEnd(step);
    }
    for (const bool together : {false, true}) {
      run.run().StepBegin(step);
      const uint64_t before = Launches();
      Around{&model, &run, together}.At(step);
      launches[together ? 1 : 0] = Launches() - before;
      run.run().StepEnd(step++);
    }
    std::printf("%s: 64 tensors and 64 updates alone %d launches, together %d\n",
                sampled ? "sampled" : "not sampled", static_cast<int>(launches[0]),
                static_cast<int>(launches[1]));
    EXPECT_EQ(launches[0], 128u);
    // 15 tensors per launch and 5 updates; elements are in the same launch or in one more. The
    // tensor whose row is kept has its own launch, and pending items are launched before it.
    EXPECT_EQ(launches[1], sampled ? 35u : 18u);
    EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  }
}

// Calls are launched one by one while the trainer continues. A host tensor never waits.
TEST_F(Device, NothingWaitsBeyondTheEnd) {
  TestRun run(RecordOptions(dir_.path()));
  Model model(&run, {kDLCUDA, 0}, 3, 0), host(&run, {kDLCPU, 0}, 3, 0);
  run.run().StepBegin(0);
  EXPECT_EQ(run.run().TogetherBegin(), PLUMBLINE_OK);
  EXPECT_THAT(model.Tensors(0), ::testing::Each(PLUMBLINE_OK));
  EXPECT_EQ(g_fake->calls("measure_tensors"), 0u);
  EXPECT_THAT(host.Tensors(0), ::testing::Each(PLUMBLINE_OK));
  EXPECT_EQ(run.run().TogetherEnd(), PLUMBLINE_OK);
  EXPECT_EQ(g_fake->calls("measure_tensors"), 1u);
  EXPECT_THAT(model.Tensors(0), ::testing::Each(PLUMBLINE_OK));
  EXPECT_EQ(g_fake->calls("measure_tensors"), 4u) << "each at once";
  EXPECT_EQ(run.run().TogetherEnd(), PLUMBLINE_OK) << "of none";
  run.run().StepEnd(0);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  EXPECT_EQ(AccountOf(Batches(dir_)).items, 9u);
}

TEST_F(Device, TogetherMayBeNested) {
  TestRun run(RecordOptions(dir_.path()));
  Model model(&run, {kDLCUDA, 0}, 3, 0);
  run.run().StepBegin(0);
  run.run().TogetherBegin();
  model.Tensor(0, 0);
  run.run().TogetherBegin();
  model.Tensor(0, 1);
  run.run().TogetherEnd();
  EXPECT_EQ(g_fake->calls("measure_tensors"), 1u) << "both";
  model.Tensor(0, 2);
  EXPECT_EQ(g_fake->calls("measure_tensors"), 1u) << "the outer one goes on";
  run.run().TogetherEnd();
  EXPECT_EQ(g_fake->calls("measure_tensors"), 2u);
  run.run().StepEnd(0);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  EXPECT_EQ(AccountOf(Batches(dir_)).items, 3u);
}

// The trainer may have overwritten the tensors by then: they are counted and not measured. The next
// step begins with no pending items.
TEST_F(Device, WhatHasNoEndIsCountedAtTheStepsEnd) {
  TestRun run(RecordOptions(dir_.path()));
  Model model(&run, {kDLCUDA, 0}, 18, 2);
  run.run().StepBegin(0);
  run.run().TogetherBegin();
  EXPECT_THAT(model.At(0), ::testing::Each(PLUMBLINE_OK));
  for (size_t i = 0; i < 18; ++i) std::fill_n(model.weight(i).values.begin(), 5, 1e30f);
  run.run().StepEnd(0);
  const uint64_t before = Launches();
  run.run().StepBegin(1);
  model.Tensor(1, 0);
  EXPECT_EQ(Launches(), before + 1) << "TogetherBegin was not called in this step";
  run.run().TogetherEnd();  // too late: no group was begun
  run.run().TogetherBegin();
  model.Tensor(1, 1);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);  // within the step, and without TogetherEnd
  const Account account = AccountOf(Batches(dir_));
  const uint64_t lost = account.lost_by_cause.at("after-step-end");
  EXPECT_EQ(account.items + lost, 20u + 2);
  EXPECT_GE(lost, 3u);
  EXPECT_LT(lost, 20u) << "full launches were sent at once";
}

// A second thread does not wait, and does not end the first thread's group.
TEST_F(Device, AnotherThreadsCallsLeaveAtOnce) {
  TestRun run(RecordOptions(dir_.path()));
  Model model(&run, {kDLCUDA, 0}, 4, 0);
  run.run().StepBegin(0);
  ASSERT_EQ(run.run().TogetherBegin(), PLUMBLINE_OK);
  model.Tensor(0, 0);
  std::thread([&] {
    EXPECT_EQ(run.run().TogetherBegin(), PLUMBLINE_NOT_DUE);
    model.Tensor(0, 1);
    EXPECT_EQ(g_fake->calls("measure_tensors"), 1u);
    EXPECT_EQ(run.run().TogetherEnd(), PLUMBLINE_OK);
    EXPECT_EQ(g_fake->calls("measure_tensors"), 1u);
  }).join();
  model.Tensor(0, 2);
  EXPECT_EQ(g_fake->calls("measure_tensors"), 1u);
  run.run().TogetherEnd();
  EXPECT_EQ(g_fake->calls("measure_tensors"), 2u);
  run.run().StepEnd(0);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  EXPECT_EQ(AccountOf(Batches(dir_)).items, 3u);
}

// Steps end while threads observe together: each call is measured or counted, once.
TEST_F(Device, StepsEndNextToWhatWaits) {
  TestRun run(RecordOptions(dir_.path()));
  Model model(&run, {kDLCUDA, 0}, 4, 0);
  std::atomic<bool> going{true};
  std::atomic<int64_t> step{0};
  std::atomic<uint64_t> taken{0};
  run.run().StepBegin(0);
  std::thread observer([&] {
    while (going) {
      run.run().TogetherBegin();
      for (size_t i = 0; i < 4; ++i) taken += model.Tensor(step.load(), i) == PLUMBLINE_OK;
      run.run().TogetherEnd();
    }
  });
  while (step < 50 || taken == 0) {
    run.run().StepEnd(step);
    run.run().StepBegin(++step);
    std::this_thread::yield();
  }
  going = false;
  observer.join();
  run.run().StepEnd(step);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  uint64_t lost = 0;
  for (const auto& [cause, n] : account.lost_by_cause) lost += n;
  EXPECT_GE(account.items + lost, taken.load());
  EXPECT_GT(account.items, 0u);
}

// Calls that go into a graph do not wait, and pending calls are launched before a capture begins.
// If a stream is captured in another way, its pending calls are lost and counted.
TEST_F(Device, CapturesAndWhatWaits) {
  TestRun run(RecordOptions(dir_.path()));
  Model model(&run, {kDLCUDA, 0}, 3, 0);
  run.run().StepBegin(0);
  run.run().TogetherBegin();
  model.Tensor(0, 0);
  run.run().CaptureBegin(nullptr);
  EXPECT_EQ(g_fake->calls("measure_tensors"), 1u);
  g_fake->capture(Stream(3), true);
  EXPECT_EQ(model.Tensor(kCaptureStep, 1), PLUMBLINE_OK) << model.error.text;
  EXPECT_EQ(g_fake->calls("capture_tensor"), 1u);
  EXPECT_EQ(model.Tensor(0, 1), PLUMBLINE_DROPPED) << "as ever";
  g_fake->capture(Stream(3), false);
  model.Tensor(0, 2);
  g_fake->capture(Stream(3), true);
  run.run().TogetherEnd();
  g_fake->capture(Stream(3), false);
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.items, 1u);
  EXPECT_EQ(account.lost_by_cause.at("stream-capture"), 2u);
}

// Flush waits for all observations, including those that are pending until TogetherEnd.
TEST_F(Device, AFlushLaunchesWhatWaits) {
  TestRun run(RecordOptions(dir_.path()));
  Model model(&run, {kDLCUDA, 0}, 3, 0);
  run.run().StepBegin(0);
  run.run().TogetherBegin();
  model.Tensors(0);
  plumbline_error_t error{};
  EXPECT_EQ(run.run().Flush(60000, &error), PLUMBLINE_OK) << error.text;
  EXPECT_EQ(g_fake->calls("measure_tensors"), 1u);
  run.run().TogetherEnd();
  EXPECT_EQ(g_fake->calls("measure_tensors"), 1u);
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  EXPECT_EQ(AccountOf(Batches(dir_)).items, 3u);
}

// An invalid call does not affect other calls; a launch that fails loses all its calls.
TEST_F(Device, FaultsOfWhatWaitsAreCounted) {
  {
    TestRun run(RecordOptions(dir_.path()));
    Model model(&run, {kDLCUDA, 0}, 4, 0);
    model.weight(1).t.ndim = -1;
    run.run().StepBegin(0);
    run.run().TogetherBegin();
    EXPECT_THAT(model.Tensors(0), ::testing::ElementsAre(PLUMBLINE_OK, PLUMBLINE_INVALID_ARGUMENT,
                                                         PLUMBLINE_OK, PLUMBLINE_OK));
    run.run().TogetherEnd();
    run.run().StepEnd(0);
    ASSERT_EQ(run.Close(), PLUMBLINE_OK);
    const Account account = AccountOf(Batches(dir_));
    EXPECT_EQ(account.items, 3u);
    EXPECT_EQ(account.lost_by_cause.at("invalid"), 1u);
  }
  TempFolder dir;
  g_fake->fail("measure_tensors", 0, kDeviceFailed, false);
  TestRun run(RecordOptions(dir.path()));
  Model model(&run, {kDLCUDA, 0}, 4, 1);
  run.run().StepBegin(0);
  run.run().TogetherBegin();
  EXPECT_THAT(model.At(0), ::testing::Each(PLUMBLINE_OK)) << "it fails when it is launched";
  run.run().TogetherEnd();
  EXPECT_EQ(model.Tensor(0, 0), PLUMBLINE_DROPPED);
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir));
  EXPECT_EQ(account.items, 0u);
  EXPECT_EQ(account.lost_by_cause.at("device-error"), 6u);
}

// More streams than a batch keeps separate: pending calls are launched, and nothing is lost.
TEST_F(Device, ManyStreamsOfTwoDevices) {
  TestRun run(RecordOptions(dir_.path()));
  Model first(&run, {kDLCUDA, 0}, 12, 6, 4), second(&run, {kDLCUDA, 1}, 12, 6, 4);
  run.run().StepBegin(0);
  run.run().TogetherBegin();
  for (Model* model : {&first, &second, &first}) {
    EXPECT_THAT(model->At(0), ::testing::Each(PLUMBLINE_OK)) << model->error.text;
  }
  run.run().TogetherEnd();
  EXPECT_LT(Launches(), 54u);
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  EXPECT_EQ(AccountOf(Batches(dir_)).items, 54u);
}

// Each of two devices launches its own calls.
TEST_F(Device, DevicesLaunchTheirOwn) {
  TestRun run(RecordOptions(dir_.path()));
  Model first(&run, {kDLCUDA, 0}, 3, 1), second(&run, {kDLCUDA, 1}, 3, 1);
  run.run().StepBegin(0);
  run.run().TogetherBegin();
  for (size_t i = 0; i < 3; ++i) {
    first.Tensor(0, i);
    second.Tensor(0, i);
  }
  first.Update(0, 0);
  second.Update(0, 0);
  run.run().TogetherEnd();
  EXPECT_EQ(g_fake->calls("measure_tensors"), 2u);
  EXPECT_EQ(g_fake->calls("check_updates"), 2u);
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  EXPECT_EQ(AccountOf(Batches(dir_)).items, 8u);
}

}  // namespace
}  // namespace plumbline::agent
