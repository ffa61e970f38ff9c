// CUDA tensors and updates through the agent, over the fake device: the record holds the same bytes
// as for host tensors, and each lost item is counted by its cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/agent/core/observed_tensors.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own
using ::testing::HasSubstr;

// All items of a run, as bytes, in any order.
std::vector<std::string> Recorded(DLDevice device, uint64_t* samples) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.traffic_bytes = 4000;  // so that some steps are not sampled
  TestRun run(options);
  Observed observed(&run, device, Stream(3));
  for (int64_t step = 0; step < 20; ++step) {
    run.run().StepBegin(step);
    for (const plumbline_status_t status : observed.At(step)) {
      EXPECT_EQ(status, PLUMBLINE_OK) << observed.error.text;
    }
    run.run().StepEnd(step);
  }
  EXPECT_EQ(run.Close(), PLUMBLINE_OK) << run.error();
  std::vector<std::string> items;
  for (const v1::Batch& batch : Batches(dir)) {
    for (const v1::Evidence& e : batch.evidence()) {
      *samples += e.tensor().has_sample() || e.update().has_sample();
      items.push_back(e.SerializeAsString());
    }
  }
  std::sort(items.begin(), items.end());
  return items;
}

TEST_F(Device, TensorsAndUpdatesAreMeasuredThereByteForByte) {
  uint64_t host_samples = 0, device_samples = 0;
  const auto host = Recorded({kDLCPU, 0}, &host_samples);
  EXPECT_EQ(g_fake->calls("measure_tensors") + g_fake->calls("check_updates"), 0u);
  const auto device = Recorded({kDLCUDA, 1}, &device_samples);
  EXPECT_EQ(g_fake->calls("measure_tensors"), 40u);
  EXPECT_EQ(g_fake->calls("check_updates"), 20u);
  ASSERT_EQ(host.size(), 60u);
  EXPECT_EQ(device, host);
  EXPECT_GT(host_samples, 3u);
  EXPECT_LT(host_samples, 60u);
  EXPECT_EQ(device_samples, host_samples);
  EXPECT_EQ(g_fake->calls("gather") + g_fake->calls("copy"), 0u) << "elements go along";
  EXPECT_EQ(Held(), 0u);
}

TEST_F(Device, TensorsAndUpdatesOfACapturedStreamAreCounted) {
  TestRun run(RecordOptions(dir_.path()));
  Observed observed(&run, {kDLCUDA, 0}, Stream(7));
  g_fake->capture(Stream(7), true);
  run.run().StepBegin(0);
  EXPECT_THAT(observed.At(0), ::testing::Each(PLUMBLINE_DROPPED));
  run.run().StepEnd(0);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  EXPECT_EQ(AccountOf(Batches(dir_)).lost_by_cause.at("stream-capture"), 3u);
}

TEST_F(Device, TensorsOfAnUpdateAreInOnePlace) {
  TestRun run(RecordOptions(dir_.path()));
  Observed observed(&run, {kDLCUDA, 0});
  run.run().StepBegin(0);
  observed.tensor(4).device = {kDLCPU, 0};
  EXPECT_THAT(observed.At(0),
              ::testing::ElementsAre(PLUMBLINE_OK, PLUMBLINE_OK, PLUMBLINE_INVALID_ARGUMENT));
  EXPECT_THAT(observed.error.text,
              HasSubstr("observe_update \"w\": intended: expected on device 0 as before"));
  run.run().StepEnd(0);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.items, 2u);
  EXPECT_EQ(account.lost_by_cause.at("invalid"), 1u);
}

TEST_F(Device, TensorsThatTheRingCannotHoldAreCounted) {
  AgentOptions options = RecordOptions(dir_.path());
  options.device_ring_bytes = 64 << 10;
  TestRun run(options);
  Observed observed(&run, {kDLCUDA, 0});
  g_fake->hold(true);
  run.run().StepBegin(0);
  uint64_t kept = 0, dropped = 0;
  for (int i = 0; i < 30; ++i) {
    for (const plumbline_status_t status : observed.At(0)) {
      ASSERT_GE(status, 0) << observed.error.text;
      (status == PLUMBLINE_OK ? kept : dropped) += 1;
    }
  }
  run.run().StepEnd(0);
  g_fake->hold(false);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const auto batches = Batches(dir_);
  const Account account = AccountOf(batches);
  uint64_t samples = 0;
  for (const v1::Batch& batch : batches) {
    for (const v1::Evidence& e : batch.evidence()) {
      samples += e.tensor().has_sample() || e.update().has_sample();
    }
  }
  EXPECT_GT(dropped, 0u);
  EXPECT_EQ(account.items, kept);
  EXPECT_EQ(account.lost_by_cause.at("device-ring-full"), dropped);
  EXPECT_GT(samples, 0u);
  EXPECT_EQ(samples + account.samples_lost, kept);
  EXPECT_EQ(account.complete_through, 0);
}

TEST_F(Device, ATensorThatTheDeviceRefusesIsCounted) {
  for (const char* call : {"measure_tensors", "check_updates"}) {
    SCOPED_TRACE(call);
    TempFolder dir;
    g_fake->reset();
    g_fake->fail(call, 0, kDeviceFailed, false);
    TestRun run(RecordOptions(dir.path()));
    Observed observed(&run, {kDLCUDA, 0});
    run.run().StepBegin(0);
    uint64_t kept = 0;
    for (const plumbline_status_t status : observed.At(0)) kept += status == PLUMBLINE_OK;
    run.run().StepEnd(0);
    ASSERT_EQ(run.Close(), PLUMBLINE_OK);
    const Account account = AccountOf(Batches(dir));
    EXPECT_EQ(account.items, kept);
    EXPECT_EQ(account.lost_by_cause.at("device-error"), 3 - kept);
    EXPECT_LT(kept, 3u);
  }
}

}  // namespace
}  // namespace plumbline::agent
