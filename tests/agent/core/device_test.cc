// CUDA tensors through the agent, over the fake device: a device that is slow, full, in capture or
// fails, from the call to the record. device_evidence_test.cc tests the measurements.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/agent/core/on_device.h"
#include "tests/support/eventually.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own
using ::testing::HasSubstr;

TEST_F(Device, AProductThatTheDeviceRefusesIsCounted) {
  g_fake->fail("gather_product", 0, kDeviceFailed, false);
  TestRun run(RecordOptions(dir_.path()));
  const std::vector<float> x(16, 1);
  int64_t shape[2] = {4, 4};
  DLTensor t{};
  t.data = const_cast<float*>(x.data());
  t.device = {kDLCUDA, 0};
  t.dtype = {PLUMBLINE_DL_FLOAT, 32, 1};
  t.ndim = 2;
  t.shape = shape;
  plumbline_matmul_t call = PLUMBLINE_MATMUL_INIT;
  call.a = call.b = call.d = &t;
  uint64_t due = 0;
  plumbline_agent_site_t site{
      sizeof(site), PLUMBLINE_KIND_MATMUL, "up", "matmul", 0, &due, nullptr, 0};
  plumbline_error_t error{};
  void* made = nullptr;
  ASSERT_EQ(run.run().DeclareSite(site, &made, &error), PLUMBLINE_OK);
  run.run().StepBegin(0);
  EXPECT_EQ(run.run().ObserveMatmul(static_cast<Site*>(made), 0, call, &error), PLUMBLINE_DROPPED);
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.items, 0u);
  EXPECT_EQ(account.lost_by_cause.at("device-error"), 1u);
}

// Measured by the GPU's clock: each work item of the fake takes a microsecond.
TEST_F(Device, TheGpusTimeIsCharged) {
  TestRun run(RecordOptions(dir_.path()));
  DeviceCall call(100, 8);
  run.run().StepBegin(0);
  ASSERT_EQ(run.Observe("layers.0", 0, call), PLUMBLINE_OK);
  run.run().StepEnd(0);
  const Site* site = run.run().state().sites.at(0);
  ASSERT_TRUE(test::Eventually([&] { return site->device_cost.median_ns() > 0; }));
  EXPECT_GE(site->device_cost.median_ns(), 1000u);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
}

// GPU time counts at its full value, and the larger of the two costs decides.
TEST_F(Device, AGpusTimeIsGovernedToo) {
  constexpr uint64_t kSecond = 1'000'000'000;
  Governor governor(0.01);
  governor.Look(kSecond, 0);
  governor.Charge(kSecond / 1000);
  governor.ChargeDevice(kSecond / 200);
  EXPECT_FALSE(governor.Look(2 * kSecond, 0));
  EXPECT_NEAR(governor.share(), 0.005, 1e-6);
  governor.ChargeDevice(kSecond / 25);
  EXPECT_TRUE(governor.Look(3 * kSecond, 0));
  EXPECT_NEAR(governor.share(), 0.04, 1e-6);
  EXPECT_EQ(governor.stretch(), 4u);
  EXPECT_TRUE(governor.Look(4 * kSecond, 0));
  EXPECT_EQ(governor.stretch(), 2u) << "what was charged is charged once";
}

TEST_F(Device, WhatTheRingCannotHoldIsCounted) {
  AgentOptions options = RecordOptions(dir_.path());
  options.device_ring_bytes = 64 << 10;
  TestRun run(options);
  DeviceCall call(100, 8);
  g_fake->hold(true);
  run.run().StepBegin(0);
  uint64_t kept = 0, dropped = 0;
  for (int i = 0; i < 60; ++i) {
    const plumbline_status_t status = run.Observe("layers.0", 0, call);
    ASSERT_GE(status, 0);
    (status == PLUMBLINE_OK ? kept : dropped) += 1;
  }
  run.run().StepEnd(0);
  g_fake->hold(false);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_GT(dropped, 0u);
  EXPECT_EQ(account.items, kept);
  EXPECT_EQ(account.lost_by_cause.at("device-ring-full"), dropped);
  EXPECT_EQ(account.samples + account.samples_lost, kept);
  EXPECT_GT(account.samples, 0u);
  EXPECT_EQ(account.lost_by_cause.at("sample-ring-full"), account.samples_lost);
  EXPECT_EQ(account.complete_through, 0);
}

// Items that do not depend on the device are written at once; the step is complete when the device
// has finished it.
TEST_F(Device, AStepIsCompleteWhenTheDeviceIsDoneWithIt) {
  TestRun run(RecordOptions(dir_.path()));
  DeviceCall call(32, 8);
  plumbline_error_t error{};
  g_fake->hold(true);
  for (int64_t step = 0; step < 4; ++step) {
    run.run().StepBegin(step);
    ASSERT_EQ(run.Observe("layers.0", step, call), PLUMBLINE_OK);
    ASSERT_EQ(run.run().Scalar(step, "loss", 1), PLUMBLINE_OK);
    run.run().StepEnd(step);
  }
  EXPECT_EQ(run.run().Flush(100, &error), PLUMBLINE_DEADLINE_EXCEEDED);
  Account account;
  test::Eventually([&] {
    account = AccountOf(Batches(dir_));
    return account.items >= 4;
  });
  EXPECT_EQ(account.items, 4u) << "the scalars";
  EXPECT_EQ(account.complete_through, -1);

  g_fake->hold(false);
  EXPECT_EQ(run.run().Flush(60000, &error), PLUMBLINE_OK) << error.text;
  account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.items, 8u);
  EXPECT_EQ(account.complete_through, 3);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  int64_t complete = -1;
  for (const auto& b : Batches(dir_)) {
    for (const auto& e : b.evidence()) EXPECT_GT(e.step(), complete);
    for (const auto& p : b.progress()) complete = p.complete_through();
  }
}

TEST_F(Device, ManyStepsMayEndWhileTheDeviceStandsStill) {
  TestRun run(RecordOptions(dir_.path()));
  DeviceCall call(32, 8);
  g_fake->hold(true);
  for (int64_t step = 0; step < 500; ++step) {
    run.run().StepBegin(step);
    if (step == 100) {
      EXPECT_EQ(run.Observe("layers.0", step, call), PLUMBLINE_OK);
    }
    run.run().Scalar(step, "loss", 1);
    run.run().StepEnd(step);
  }
  g_fake->hold(false);
  plumbline_error_t error{};
  EXPECT_EQ(run.run().Flush(60000, &error), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.items, 501u);
  EXPECT_EQ(account.lost, 0u);
  EXPECT_EQ(account.complete_through, 499);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
}

TEST_F(Device, CloseWaitsForTheDeviceABoundedTimeAndCountsTheRest) {
  TestRun run(RecordOptions(dir_.path()));
  DeviceCall call(32, 8);
  g_fake->hold(true);
  for (int64_t step = 0; step < 2; ++step) {
    run.run().StepBegin(step);
    ASSERT_EQ(run.Observe("layers.0", step, call), PLUMBLINE_OK);
    ASSERT_EQ(run.Observe("layers.1", step, call), PLUMBLINE_OK);
    run.run().Scalar(step, "loss", 1);
    run.run().StepEnd(step);
  }
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(run.Close(60000), PLUMBLINE_OK) << run.error();
  const auto waited = std::chrono::steady_clock::now() - before;
  EXPECT_GE(waited, std::chrono::milliseconds(1900)) << "the device was given no time";
  EXPECT_LT(waited, std::chrono::seconds(30));
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.items, 2u);
  EXPECT_EQ(account.lost_by_cause.at("device-unfinished"), 4u);
  EXPECT_EQ(account.complete_through, 1);
  EXPECT_TRUE(account.finished);
  EXPECT_GT(Held(), 0u) << "the device may still write there";
  g_fake->hold(false);
}

TEST_F(Device, CloseInAHurryStillWritesWhatItHas) {
  TestRun run(RecordOptions(dir_.path()));
  DeviceCall call(32, 8);
  g_fake->hold(true);
  run.run().StepBegin(0);
  ASSERT_EQ(run.Observe("layers.0", 0, call), PLUMBLINE_OK);
  run.run().Scalar(0, "loss", 1);
  run.run().StepEnd(0);
  run.Close(200);  // in time or not; the drain thread ends its work in both cases
  Account account;
  test::Eventually([&] {
    account = AccountOf(Batches(dir_));
    return account.finished;
  });
  EXPECT_TRUE(account.finished);
  EXPECT_EQ(account.lost_by_cause.at("device-unfinished"), 1u);
  EXPECT_EQ(account.items, 1u);
  g_fake->hold(false);
}

TEST_F(Device, CloseFetchesWhatIsStillUnderWayAndFreesAll) {
  TestRun run(RecordOptions(dir_.path()));
  DeviceCall call(32, 8);
  g_fake->hold(true);
  run.run().StepBegin(0);
  ASSERT_EQ(run.Observe("layers.0", 0, call), PLUMBLINE_OK);
  run.run().StepEnd(0);
  g_fake->release_after(10);  // independent of the clock: close gives the device 2 seconds
  EXPECT_EQ(run.Close(60000), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.items, 1u);
  EXPECT_EQ(account.lost, 0u);
  EXPECT_EQ(Held(), 0u);
}

TEST_F(Device, ACapturedStreamIsSkippedAndCounted) {
  TestRun run(RecordOptions(dir_.path()));
  DeviceCall captured(32, 8, 0, Stream(7));
  DeviceCall other(32, 8, 0, Stream(8));
  g_fake->capture(Stream(7), true);
  run.run().StepBegin(0);
  EXPECT_EQ(run.Observe("layers.0", 0, captured), PLUMBLINE_DROPPED);
  EXPECT_EQ(g_fake->calls("measure"), 0u);
  EXPECT_EQ(run.Observe("layers.0", 0, other), PLUMBLINE_OK);
  run.run().StepEnd(0);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.lost_by_cause.at("stream-capture"), 1u);
  EXPECT_EQ((account.lost_by_site.at({"layers.0", "routing"})), 1u);
  EXPECT_EQ(account.items, 1u);
}

TEST_F(Device, StreamsOfAnotherDeviceAreTheCallersMistake) {
  TestRun run(RecordOptions(dir_.path()));
  DeviceCall call(32, 8);
  g_fake->fail("stream_id", 0, kDeviceRefused, false);
  run.run().StepBegin(0);
  EXPECT_EQ(run.Observe("layers.0", 0, call), PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_THAT(run.error(), HasSubstr("observe_routing \"layers.0\": stream_id"));
  EXPECT_EQ(run.Observe("layers.0", 0, call), PLUMBLINE_OK);
  run.run().StepEnd(0);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  EXPECT_EQ(AccountOf(Batches(dir_)).lost_by_cause.at("invalid"), 1u);
}

TEST_F(Device, SeveralDevicesEachHaveARing) {
  TestRun run(RecordOptions(dir_.path()));
  DeviceCall first(32, 8, 0), second(32, 8, 5);
  for (int64_t step = 0; step < 5; ++step) {
    run.run().StepBegin(step);
    EXPECT_EQ(run.Observe("layers.0", step, first), PLUMBLINE_OK);
    EXPECT_EQ(run.Observe("layers.1", step, second), PLUMBLINE_OK);
    run.run().StepEnd(step);
  }
  EXPECT_EQ(g_fake->calls("open"), 2u);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.items, 10u);
  EXPECT_EQ(account.complete_through, 4);
}

TEST_F(Device, ManyThreadsObserveAtOnce) {
  TestRun run(RecordOptions(dir_.path()));
  constexpr int kThreads = 6, kEach = 200;
  Site* shared = run.RoutingSite("shared");
  std::atomic<uint64_t> dropped{0};
  run.run().StepBegin(0);
  std::vector<std::unique_ptr<DeviceCall>> calls;
  for (int t = 0; t < kThreads; ++t) {
    calls.push_back(std::make_unique<DeviceCall>(16, 8, t % 2, Stream(static_cast<uintptr_t>(t))));
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      plumbline_error_t error;
      for (int i = 0; i < kEach; ++i) {
        const plumbline_status_t s =
            run.run().ObserveRouting(shared, 0, calls[static_cast<size_t>(t)]->get(), &error);
        EXPECT_GE(s, 0);
        dropped += s != PLUMBLINE_OK;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  run.run().StepEnd(0);
  EXPECT_EQ(run.Close(60000), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.lost, dropped.load());
  EXPECT_EQ(account.items + account.lost, uint64_t{kThreads} * kEach);
  EXPECT_GT(account.items, 100u);
  EXPECT_EQ(Held(), 0u);
}

TEST_F(Device, ABadIndexIsFoundWhenItComesBack) {
  TestRun run(RecordOptions(dir_.path()));
  DeviceCall call(8, 4);
  call.topk()[3] = 4;
  run.run().StepBegin(0);
  EXPECT_EQ(run.Observe("l", 0, call), PLUMBLINE_OK);
  run.run().StepEnd(0);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.lost_by_cause.at("invalid"), 1u);
  EXPECT_EQ(account.items, 0u);
}

struct Fault {
  const char* call;
  int nth;
  const char* cause;
};

class FailingDevice : public Device, public ::testing::WithParamInterface<Fault> {};

// No call waits or fails, host observations continue, and every call is in the record or counted.
TEST_P(FailingDevice, IsCountedAndLeftAlone) {
  const Fault& p = GetParam();
  constexpr uint64_t kCalls = 12;
  {
    TestRun run(RecordOptions(dir_.path()));
    DeviceCall call(32, 8);
    RouterCall host(32, 8, 2);
    g_fake->fail(p.call, p.nth, kDeviceFailed, true);
    for (int64_t step = 0; step < 4; ++step) {
      run.run().StepBegin(step);
      for (int i = 0; i < 3; ++i) {
        const plumbline_status_t s = run.Observe("device", step, call);
        EXPECT_TRUE(s == PLUMBLINE_OK || s == PLUMBLINE_DROPPED || s == PLUMBLINE_UNAVAILABLE) << s;
        if (s == PLUMBLINE_UNAVAILABLE) {
          EXPECT_THAT(run.error(), HasSubstr("CUDA device 0, which the agent cannot use: "));
          EXPECT_THAT(run.error(), HasSubstr("made to fail"));
        }
      }
      EXPECT_EQ(run.Observe("host", step, host), PLUMBLINE_OK);
      run.run().StepEnd(step);
    }
    EXPECT_EQ(run.Close(60000), PLUMBLINE_OK) << run.error();
  }
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ((account.items_by_site.at({"host", "routing"})), 4u);
  const uint64_t measured = account.items - 4;
  EXPECT_EQ(measured + account.lost, kCalls);
  EXPECT_GT(account.lost, 0u);
  EXPECT_EQ(account.lost_by_cause.at(p.cause), account.lost);
  EXPECT_EQ(account.complete_through, 3);
}

constexpr char kNotLoaded[] = "device-kernels-not-loaded";
constexpr char kFailed[] = "device-error";

INSTANTIATE_TEST_SUITE_P(
    Calls, FailingDevice,
    ::testing::Values(Fault{"open", 0, kNotLoaded}, Fault{"pin", 0, kNotLoaded},
                      Fault{"make_event", 5, kNotLoaded}, Fault{"allocate", 0, kFailed},
                      Fault{"stream_id", 0, kFailed}, Fault{"stream_id", 5, kFailed},
                      Fault{"measure", 0, kFailed}, Fault{"measure", 4, kFailed},
                      Fault{"copy", 0, kFailed}, Fault{"copy", 5, kFailed},
                      Fault{"record_event", 0, kFailed}, Fault{"record_event", 4, kFailed},
                      Fault{"event_passed", 0, kFailed}, Fault{"event_passed", 4, kFailed}),
    [](const auto& p) { return std::string(p.param.call) + std::to_string(p.param.nth); });

}  // namespace
}  // namespace plumbline::agent

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  setenv("PLUMBLINE_CUDA_LIBRARY", FAKE_DEVICE, 1);
  void* library = dlopen(FAKE_DEVICE, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 1;
  using plumbline::agent::testing::g_fake;
  g_fake = static_cast<const plumbline::FakeDeviceControl*>(
      dlsym(library, plumbline::kFakeDeviceSymbol));
  return g_fake == nullptr ? 1 : RUN_ALL_TESTS();
}
