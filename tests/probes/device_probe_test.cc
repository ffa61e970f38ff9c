// The devices of one run, over the fake: loading, several devices, the end of the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "probes/device/probe.h"
#include "tests/probes/device_tensors.h"

namespace plumbline::probes {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class Probe : public OnFakeDevice {
 protected:
  DeviceReply Observe(DeviceProbe* probe, const RoutingCall& call, uint32_t number = 0) {
    DeviceReply reply;
    probe->Observe(call, nullptr, {nullptr, 1, number, false}, &reply);
    return reply;
  }
  static DeviceProbe::Loader FakeLoader() {
    return [](DeviceError*) { return &plumbline_device_table; };
  }
  static std::vector<uint32_t> Drained(DeviceProbe* probe) {
    std::vector<uint32_t> calls;
    probe->Drain([&](const DeviceItem& item) { calls.push_back(item.tag.call); });
    return calls;
  }
};

TEST_F(Probe, NothingIsLoadedBeforeTheFirstTensor) {
  int loads = 0;
  DeviceProbe probe(
      [&](DeviceError*) {
        ++loads;
        return &plumbline_device_table;
      },
      {}, {});
  EXPECT_TRUE(probe.empty());
  EXPECT_FALSE(probe.used());
  EXPECT_TRUE(probe.Passed(probe.Position()));
  EXPECT_EQ(loads, 0);
  EXPECT_EQ(Held(), 0u);
}

TEST_F(Probe, StatesWhyADeviceCannotBeUsed) {
  int loads = 0;
  DeviceProbe probe(
      [&](DeviceError* error) {
        ++loads;
        std::strcpy(error->text, "libplumbline_cuda.so: not here");
        return static_cast<const DeviceTable*>(nullptr);
      },
      {}, {});
  const DeviceCase c(1);
  for (int i = 0; i < 3; ++i) {
    const DeviceReply reply = Observe(&probe, c.device());
    EXPECT_EQ(reply.outcome, DeviceOutcome::kNotLoaded);
    EXPECT_STREQ(reply.error.text, "libplumbline_cuda.so: not here");
  }
  EXPECT_EQ(loads, 1);
  EXPECT_FALSE(probe.used());
  const DeviceReply far = Observe(&probe, c.device(kMaxDevices));
  EXPECT_EQ(far.outcome, DeviceOutcome::kNotLoaded);
  EXPECT_THAT(far.error.text, HasSubstr("at most 31"));
}

TEST_F(Probe, ADeviceThatCannotBeOpenedIsTriedOnce) {
  DeviceProbe probe(FakeLoader(), {}, {});
  const DeviceCase c(1);
  fake_.fail("open", 0, kDeviceFailed, true);
  EXPECT_EQ(Observe(&probe, c.device()).outcome, DeviceOutcome::kNotLoaded);
  EXPECT_EQ(Observe(&probe, c.device()).outcome, DeviceOutcome::kNotLoaded);
  EXPECT_EQ(fake_.calls("open"), 1u);
  fake_.reset();
  EXPECT_EQ(Observe(&probe, c.device(1)).outcome, DeviceOutcome::kTaken) << "another device";
  EXPECT_EQ(Drained(&probe).size(), 1u);
}

TEST_F(Probe, EachDeviceHasARing) {
  int ready = 0;
  DeviceProbe probe(FakeLoader(), {}, [&] { ++ready; });
  const DeviceCase c(1);
  EXPECT_TRUE(Observe(&probe, c.device(0), 0).prepared);
  EXPECT_TRUE(Observe(&probe, c.device(3), 1).prepared);
  EXPECT_FALSE(Observe(&probe, c.device(0), 2).prepared);
  EXPECT_EQ(ready, 2);
  EXPECT_EQ(fake_.calls("open"), 2u);
  EXPECT_EQ(Drained(&probe), (std::vector<uint32_t>{0, 2, 1}));
  EXPECT_TRUE(probe.used());
  probe.Free();
  EXPECT_EQ(Held(), 0u);
}

TEST_F(Probe, TensorsAndUpdatesGoToTheirDevicesRing) {
  DeviceProbe probe(FakeLoader(), {}, {});
  const DeviceCase router(1);
  const TensorCase tensor(3);
  const UpdateCase update(4);
  const MeasureOptions options = OptionsOf(3, true);
  const auto tag = [](uint32_t call) { return DeviceTag{nullptr, 1, call, true}; };
  DeviceReply reply;
  probe.Observe(tensor.device(2), options, nullptr, tag(0), &reply);
  EXPECT_EQ(reply.outcome, DeviceOutcome::kTaken) << reply.error.text;
  EXPECT_TRUE(reply.prepared);
  EXPECT_EQ(Observe(&probe, router.device(1), 1).outcome, DeviceOutcome::kTaken);
  probe.Observe(update.device(1), options, nullptr, tag(2), &reply);
  EXPECT_TRUE(reply.prepared) << "the first of its ring";
  reply = {};
  probe.Observe(update.device(2), options, nullptr, tag(3), &reply);
  EXPECT_FALSE(reply.prepared);
  std::vector<uint32_t> calls;
  probe.Drain([&](const DeviceItem& item) {
    calls.push_back(item.tag.call);
    if (item.tensor != nullptr) {
      EXPECT_EQ(DeviceEvidence(item), HostEvidence(tensor.host(), options));
    }
    if (item.update != nullptr) {
      EXPECT_EQ(DeviceEvidence(item), HostEvidence(update.host(), options));
    }
  });
  EXPECT_EQ(calls, (std::vector<uint32_t>{1, 2, 0, 3}));
  probe.Free();
  EXPECT_EQ(Held(), 0u);
}

// The first call on a device may be a call in a graph.
TEST_F(Probe, ADeviceIsGotReadyWithinACapture) {
  DeviceProbe probe(FakeLoader(), {}, {});
  const TensorCase tensor(3);
  DeviceReply reply;
  int site = 0;
  fake_.capture(Stream(9), true);
  probe.Capture(tensor.device(), 0, Stream(9), Stream(3), &site, &reply);
  fake_.capture(Stream(9), false);
  EXPECT_EQ(reply.outcome, DeviceOutcome::kTaken) << reply.error.text;
  EXPECT_TRUE(reply.prepared);
  EXPECT_TRUE(probe.used());
  fake_.destroy(Stream(9));
  probe.Free();
  EXPECT_EQ(Held(), 0u);
}

// If a driver refuses a request during a capture, the call is lost and the cause is named. The next
// call requests again, and resources that were obtained are returned.
TEST_F(Probe, ACaptureThatStandsInTheWayIsNotForGood) {
  const TensorCase tensor(3);
  for (const auto& [call, nth] : {std::pair{"open", 0},
                                  {"pin", 0},
                                  {"make_event", 0},
                                  {"make_event", 500},
                                  {"make_timer", 3},
                                  {"allocate", 0}}) {
    SCOPED_TRACE(std::string(call) + std::to_string(nth));
    DeviceProbe probe(FakeLoader(), {}, {});
    fake_.fail(call, nth, kDeviceCapturing, false);
    DeviceReply reply;
    probe.Observe(tensor.device(), {}, nullptr, {nullptr, 1, 7, false}, &reply);
    EXPECT_EQ(reply.outcome, DeviceOutcome::kCapturing);
    reply = DeviceReply();
    probe.Observe(tensor.device(), {}, nullptr, {nullptr, 1, 8, false}, &reply);
    EXPECT_EQ(reply.outcome, DeviceOutcome::kTaken) << reply.error.text;
    EXPECT_EQ(Drained(&probe), std::vector<uint32_t>{8});
    probe.Free();
    EXPECT_EQ(Held(), 0u);
  }
}

// The same for a call that will be captured.
TEST_F(Probe, NeitherIsItForACallInAGraph) {
  const TensorCase tensor(3);
  for (const char* call : {"open", "pin", "make_event", "allocate", "write_memory"}) {
    SCOPED_TRACE(call);
    DeviceProbe probe(FakeLoader(), {}, {});
    fake_.capture(Stream(9), true);
    fake_.fail(call, 0, kDeviceCapturing, false);
    int site = 0;
    DeviceReply reply;
    probe.Capture(tensor.device(), 0, Stream(9), Stream(3), &site, &reply);
    EXPECT_EQ(reply.outcome, DeviceOutcome::kCapturing);
    reply = DeviceReply();
    probe.Capture(tensor.device(), 0, Stream(9), Stream(3), &site, &reply);
    EXPECT_EQ(reply.outcome, DeviceOutcome::kTaken) << reply.error.text;
    fake_.capture(Stream(9), false);
    fake_.destroy(Stream(9));
    probe.Free();
    EXPECT_EQ(Held(), 0u);
  }
}

TEST_F(Probe, AMarkIsPassedWhenAllBeforeItCameOut) {
  DeviceProbe probe(FakeLoader(), {}, {});
  const DeviceCase c(1);
  fake_.hold(true);
  Observe(&probe, c.device(0), 0);
  Observe(&probe, c.device(1), 1);
  const DeviceProbe::Mark mark = probe.Position();
  EXPECT_TRUE(Drained(&probe).empty());
  EXPECT_FALSE(probe.Passed(mark));
  fake_.advance(100);
  Observe(&probe, c.device(0), 2);
  EXPECT_EQ(Drained(&probe).size(), 2u);
  EXPECT_TRUE(probe.Passed(mark));
  EXPECT_FALSE(probe.empty());
  fake_.hold(false);
  EXPECT_EQ(Drained(&probe), (std::vector<uint32_t>{2}));
}

TEST_F(Probe, LeavingWaitsForTheDrainThreadAndThenSendsNoRequest) {
  DeviceProbe probe(FakeLoader(), {}, {});
  const DeviceCase c(1);
  fake_.hold(true);
  for (uint32_t i = 0; i < 4; ++i) Observe(&probe, c.device(), i);
  std::atomic<bool> stop{false};
  std::atomic<size_t> drained{0};
  std::thread drain([&] {
    while (!stop) {
      drained += Drained(&probe).size();
      std::this_thread::yield();
    }
  });
  std::thread device([&] {
    std::this_thread::sleep_for(milliseconds(20));
    fake_.hold(false);
  });
  probe.Leave(DeviceProbe::Clock::now() + std::chrono::seconds(60));
  EXPECT_EQ(drained, 4u);
  const uint64_t queries = fake_.calls("event_passed");
  EXPECT_EQ(Observe(&probe, c.device(), 9).outcome, DeviceOutcome::kFailed);
  EXPECT_EQ(Drained(&probe).size(), 0u);
  EXPECT_EQ(fake_.calls("event_passed"), queries);
  stop = true;
  drain.join();
  device.join();
}

TEST_F(Probe, LeavingIsBounded) {
  DeviceProbe probe(FakeLoader(), {}, {});
  const DeviceCase c(1);
  fake_.hold(true);
  Observe(&probe, c.device(), 0);
  probe.Leave(DeviceProbe::Clock::now() + milliseconds(30));
  std::vector<bool> measured;
  probe.Drain([&](const DeviceItem& item) { measured.push_back(item.measured); });
  EXPECT_EQ(measured, std::vector<bool>{false});
  probe.Free();
  EXPECT_GT(Held(), 0u) << "the device may still write";
  fake_.hold(false);
}

}  // namespace
}  // namespace plumbline::probes
