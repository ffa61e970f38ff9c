// Tests the ring of a device that fails or is abandoned, on the fake. Accepted calls are returned,
// the device is not used again, and memory to which it may still write is not freed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "probes/device/ring.h"
#include "tests/probes/device_case.h"

namespace plumbline::probes {
namespace {

using ::testing::HasSubstr;

class FailingRing : public OnFakeDevice, public ::testing::WithParamInterface<Fault> {};

// After any failure, the ring returns the accepted calls, measured or not, does not use the device
// again, and keeps the memory that the device may still write to.
TEST_P(FailingRing, IsLeftAlone) {
  const Fault& p = GetParam();
  fake_.fail(p.call, p.nth, kDeviceFailed, false);
  DeviceLimits limits;
  limits.events = 8;
  auto ring = DeviceRing::Open(&plumbline_device_table, 0, limits, &error_);
  if (ring == nullptr) {
    EXPECT_EQ(std::string(error_.text), std::string(p.call) + ": made to fail");
    EXPECT_EQ(Held(), 0u);
    return;
  }
  const PlainCase c(32, 8);
  fake_.hold(true);
  int taken = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const DeviceOutcome o = Observe(ring.get(), c.call, i);
    ASSERT_TRUE(o == DeviceOutcome::kTaken || o == DeviceOutcome::kFailed) << static_cast<int>(o);
    taken += o == DeviceOutcome::kTaken ? 1 : 0;
  }
  fake_.advance(100);
  int measured = 0, unmeasured = 0;
  DeviceItem item;
  for (; ring->Front(&item); ring->Pop()) {
    (item.measured ? measured : unmeasured) += 1;
    if (!item.measured) {
      EXPECT_EQ(std::string(item.why.text), std::string(p.call) + ": made to fail");
    }
  }
  EXPECT_TRUE(ring->empty());
  EXPECT_EQ(measured + unmeasured, taken);
  EXPECT_TRUE(ring->failed());
  const uint64_t measures = fake_.calls("measure"), queries = fake_.calls("event_passed");
  EXPECT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kFailed);
  EXPECT_FALSE(ring->Front(&item));
  EXPECT_EQ(fake_.calls("measure"), measures);
  EXPECT_EQ(fake_.calls("event_passed"), queries);
  ring.reset();
  EXPECT_EQ(Held() > 0, p.leaks);
}

INSTANTIATE_TEST_SUITE_P(
    Calls, FailingRing,
    ::testing::Values(Fault{"open", 0, false}, Fault{"pin", 0, false},
                      Fault{"make_event", 0, false}, Fault{"make_event", 7, false},
                      Fault{"measure", 0, false}, Fault{"measure", 2, false},
                      Fault{"copy", 0, false}, Fault{"copy", 3, false},
                      Fault{"record_event", 0, true}, Fault{"record_event", 2, true},
                      Fault{"event_passed", 0, true}, Fault{"event_passed", 2, true}),
    [](const auto& p) { return std::string(p.param.call) + std::to_string(p.param.nth); });

TEST_F(Ring, AFailingStreamQueryLeavesTheDeviceAlone) {
  auto ring = Open();
  const PlainCase c(32, 8);
  fake_.fail("stream_id", 1, kDeviceFailed, false);
  EXPECT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kTaken);
  EXPECT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kFailed);
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  EXPECT_TRUE(item.measured);  // the call in progress is still valid
  ring->Pop();
  EXPECT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kFailed);
  ring.reset();
  EXPECT_EQ(Held(), 0u);
}

TEST_F(Ring, FreesAllThatIsDone) {
  auto ring = Open();
  const PlainCase c(32, 8);
  ASSERT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kTaken);
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  ring->Pop();
  EXPECT_GT(Held(), 0u);
  ring.reset();
  EXPECT_EQ(Held(), 0u);
}

TEST_F(Ring, WhatIsUnderWayIsNotFreed) {
  auto ring = Open();
  PlainCase c(32, 8);
  fake_.hold(true);
  ASSERT_EQ(Observe(ring.get(), c.call, 3), DeviceOutcome::kTaken);
  ring->Abandon("the run was closed");
  const uint64_t queries = fake_.calls("event_passed");
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  EXPECT_EQ(item.tag.call, 3u);
  EXPECT_FALSE(item.measured);
  EXPECT_TRUE(item.abandoned);
  EXPECT_STREQ(item.why.text, "the run was closed");
  ring->Pop();
  EXPECT_EQ(fake_.calls("event_passed"), queries) << "the device was queried again";
  EXPECT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kFailed);
  ring.reset();
  EXPECT_GT(Held(), 0u);
  fake_.hold(false);  // writes into memory that still exists
}

// A forked child must not share the pages. Otherwise the parent's next write would go to a copy
// that the device does not see.
TEST_F(Ring, PinnedPagesAreNotInheritedByChildren) {
  DeviceLimits limits;
  limits.ring_bytes = 3 << 20;
  const auto ring = Open(limits);
  const PlainCase c(32, 8);
  ASSERT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kTaken);
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  const auto address = reinterpret_cast<uintptr_t>(item.raw);
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false, found = false;
  while (std::getline(maps, line)) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream range(line);
    if (range >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = address >= begin && address < end;
    }
    if (!inside || line.rfind("VmFlags:", 0) != 0) continue;
    found = true;
    EXPECT_THAT(line, HasSubstr(" dc"));
  }
  EXPECT_TRUE(found);
  ring->Pop();
}

}  // namespace
}  // namespace plumbline::probes
