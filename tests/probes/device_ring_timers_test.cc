// Tests the GPU's time of sampled calls, on the fake, where each piece of work takes a microsecond.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/probes/device_tensors.h"

namespace plumbline::probes {
namespace {

class RingTimers : public OnFakeDevice {
 protected:
  // Returns the time of the next item.
  uint64_t Next(DeviceRing* ring) {
    DeviceItem item;
    if (!ring->Front(&item) || !item.measured) {
      ADD_FAILURE() << item.why.text;
      return 0;
    }
    ring->Pop();
    return item.gpu_ns;
  }
};

TEST_F(RingTimers, SampledCallsAreTimedAndNoOthers) {
  const auto ring = Open();
  const PlainCase c(32, 8);
  for (int i = 0; i < 200; ++i) {  // more than there are timers
    const bool sampled = i % 3 != 0;
    ASSERT_EQ(Observe(ring.get(), c.call, 0, sampled), DeviceOutcome::kTaken) << error_.text;
    EXPECT_EQ(Next(ring.get()), sampled ? 3000u : 0u) << "the measurement and two copies";
  }
  EXPECT_EQ(fake_.calls("mark_timer"), 2 * fake_.calls("read_timer"));
}

// Other work of the stream is not counted.
TEST_F(RingTimers, OtherWorkOfTheStreamDoesNotCount) {
  const auto ring = Open();
  const TensorCase c(3);
  fake_.hold(true);
  bool prepared = false;
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_EQ(ring->Observe(c.device(), OptionsOf(i, i % 2 == 0), nullptr,
                            {nullptr, 1, i, i % 2 == 0}, &prepared, &error_),
              DeviceOutcome::kTaken);
  }
  fake_.hold(false);
  const uint64_t first = Next(ring.get());
  EXPECT_GT(first, 0u);
  EXPECT_EQ(Next(ring.get()), 0u);
  EXPECT_EQ(Next(ring.get()), first);
}

TEST_F(RingTimers, WithoutAFreeTimerTheCallIsTakenAllTheSame) {
  DeviceLimits limits;
  limits.timers = 2;
  const auto ring = Open(limits);
  const PlainCase c(32, 8);
  fake_.hold(true);
  for (uint32_t i = 0; i < 4; ++i) ASSERT_EQ(Observe(ring.get(), c.call, i), DeviceOutcome::kTaken);
  fake_.hold(false);
  EXPECT_GT(Next(ring.get()), 0u);
  EXPECT_GT(Next(ring.get()), 0u);
  EXPECT_EQ(Next(ring.get()), 0u);
  EXPECT_EQ(Next(ring.get()), 0u);
  DeviceItem item;
  EXPECT_FALSE(ring->Front(&item));
  ASSERT_EQ(Observe(ring.get(), c.call, 5), DeviceOutcome::kTaken);
  EXPECT_GT(Next(ring.get()), 0u) << "they came back";
}

// If a timer fails, only the time is lost.
TEST_F(RingTimers, FailingTimers) {
  const PlainCase c(32, 8);
  for (const auto& [call, nth] :
       {std::pair{"mark_timer", 0}, {"mark_timer", 1}, {"read_timer", 0}}) {
    SCOPED_TRACE(std::string(call) + std::to_string(nth));
    const auto ring = Open();
    fake_.fail(call, nth, kDeviceFailed, false);
    ASSERT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kTaken);
    EXPECT_EQ(Next(ring.get()), 0u);
    ASSERT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kTaken);
    EXPECT_EQ(Next(ring.get()), 3000u);
    EXPECT_FALSE(ring->failed());
  }
  fake_.fail("make_timer", 5, kDeviceFailed, false);
  const uint64_t held = Held();
  EXPECT_EQ(DeviceRing::Open(&plumbline_device_table, 0, {}, &error_), nullptr);
  EXPECT_EQ(std::string(error_.text), "make_timer: made to fail");
  EXPECT_EQ(Held(), held);
}

}  // namespace
}  // namespace plumbline::probes
