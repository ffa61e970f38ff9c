// Tests tensors and updates on a device that is full, captured or fails, on the fake. They are lost
// in the same way as router calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/probes/device_tensors.h"

namespace plumbline::probes {
namespace {

using ::testing::HasSubstr;

TEST_F(TensorRing, ElementsAreGivenUpBeforeFiguresAndThoseAtLast) {
  DeviceLimits limits;
  limits.ring_bytes = 256 << 10;
  const auto ring = Open(limits);
  const std::vector<float> values(12000, 1);
  TensorCall call;
  call.role = "probabilities";  // one row of 48 KB
  call.values = TensorView::Dense(values.data(), DType::kF32, 12000);
  call.values.device = 0;
  fake_.hold(true);
  int whole = 0, bare = 0, refused = 0;
  for (uint32_t i = 0; i < 200; ++i) {
    const DeviceOutcome o = ObserveAt(ring.get(), call, i, OptionsOf(1, true));
    whole += o == DeviceOutcome::kTaken;
    bare += o == DeviceOutcome::kTakenWithoutRows;
    refused += o == DeviceOutcome::kRingFull;
  }
  EXPECT_GT(whole, 1);
  EXPECT_GT(bare, 1);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(whole + bare + refused, 200);
  fake_.hold(false);
  DeviceItem item;
  for (; ring->Front(&item); ring->Pop()) {
    v1::Evidence evidence;
    ASSERT_TRUE(Measure(*item.tensor, &evidence).ok());
    EXPECT_EQ(evidence.tensor().summary().sum(), 12000);
    if (evidence.tensor().has_sample()) {
      --whole;
    } else {
      EXPECT_THAT(evidence.tensor().no_sample_reason(),
                  HasSubstr("no room for a sample of 48000 bytes"));
      --bare;
    }
  }
  EXPECT_EQ(whole, 0);
  EXPECT_EQ(bare, 0);
}

TEST_F(TensorRing, WithoutAFreeEventTheCallIsRefused) {
  DeviceLimits limits;
  limits.events = 1;
  const auto ring = Open(limits);
  const TensorCase c(3);
  fake_.hold(true);
  EXPECT_EQ(ObserveAt(ring.get(), c.device(), 0, {}), DeviceOutcome::kTaken);
  EXPECT_EQ(ObserveAt(ring.get(), c.device(), 1, {}), DeviceOutcome::kRingFull);
  EXPECT_EQ(fake_.calls("measure_tensors"), 1u);
  fake_.hold(false);
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  ring->Pop();
}

TEST_F(TensorRing, TheFirstAllocatesForAll) {
  const auto ring = Open();
  const TensorCase tensor(3);
  const UpdateCase update(3);
  bool prepared = false;
  DeviceItem item;
  ASSERT_EQ(ring->Observe(tensor.device(), {}, nullptr, {}, &prepared, &error_),
            DeviceOutcome::kTaken);
  EXPECT_TRUE(prepared);
  ASSERT_EQ(ring->Observe(update.device(), {}, nullptr, {}, &prepared, &error_),
            DeviceOutcome::kTaken);
  EXPECT_FALSE(prepared);
  EXPECT_EQ(fake_.calls("allocate"), uint64_t{kDeviceStreams});
  for (; ring->Front(&item); ring->Pop()) EXPECT_TRUE(item.measured);
}

TEST_F(TensorRing, NoMemoryIsAFailureOfTensorsAlone) {
  const auto ring = Open();
  const TensorCase tensor(3);
  const PlainCase router(32, 8);
  fake_.fail("allocate", 0, kDeviceFailed, true);
  EXPECT_EQ(ObserveAt(ring.get(), tensor.device(), 0, {}), DeviceOutcome::kFailed);
  fake_.reset();
  EXPECT_EQ(ObserveAt(ring.get(), tensor.device(), 0, {}), DeviceOutcome::kFailed);
  EXPECT_STREQ(error_.text, "allocate: made to fail");
  EXPECT_EQ(Observe(ring.get(), router.call), DeviceOutcome::kTaken);
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  ring->Pop();
}

TEST_F(TensorRing, EachStreamHasItsWorkspace) {
  const auto ring = Open();
  const TensorCase tensor(3);
  const UpdateCase update(5);
  fake_.hold(true);
  for (uint32_t i = 0; i < kDeviceStreams; ++i) {
    EXPECT_EQ(ObserveAt(ring.get(), tensor.device(), i, OptionsOf(1, true), Stream(i)),
              DeviceOutcome::kTaken);
    EXPECT_EQ(ObserveAt(ring.get(), update.device(), i, OptionsOf(1, true), Stream(i)),
              DeviceOutcome::kTaken);
  }
  EXPECT_EQ(ObserveAt(ring.get(), tensor.device(), 9, {}, Stream(99)),
            DeviceOutcome::kTooManyStreams);
  fake_.hold(false);
  DeviceItem item;
  for (; ring->Front(&item); ring->Pop()) EXPECT_TRUE(item.measured);
  EXPECT_EQ(ObserveAt(ring.get(), tensor.device(), 9, {}, Stream(99)), DeviceOutcome::kTaken);
  ASSERT_TRUE(ring->Front(&item));
  ring->Pop();
}

TEST_F(TensorRing, NothingIsGivenToAStreamThatIsCaptured) {
  const auto ring = Open();
  const TensorCase tensor(3);
  const UpdateCase update(5);
  fake_.capture(Stream(1), true);
  EXPECT_EQ(ObserveAt(ring.get(), tensor.device(), 0, OptionsOf(1, true), Stream(1)),
            DeviceOutcome::kCapturing);
  EXPECT_EQ(ObserveAt(ring.get(), update.device(), 0, OptionsOf(1, true), Stream(1)),
            DeviceOutcome::kCapturing);
  for (const char* call :
       {"allocate", "measure_tensors", "check_updates", "gather", "copy", "record_event"}) {
    EXPECT_EQ(fake_.calls(call), 0u) << call;
  }
  EXPECT_TRUE(ring->empty());
}

class FailingTensors : public TensorRing, public ::testing::WithParamInterface<Fault> {};

// As with router calls, accepted calls are returned, measured or not, and the device is not used
// again.
TEST_P(FailingTensors, AreLeftAlone) {
  const Fault& p = GetParam();
  auto ring = Open();
  const std::vector<float> values(5000, 1);
  TensorCall tensor;
  tensor.values = TensorView::Dense(values.data(), DType::kF32, 5000);
  tensor.values.device = 0;
  TensorCall rows = tensor;
  rows.role = "probabilities";
  UpdateCall update;
  update.input.before = update.input.after = update.input.intended = tensor.values;
  const MeasureOptions options = OptionsOf(1, true);
  fake_.fail(p.call, p.nth, kDeviceFailed, false);
  fake_.hold(true);
  int taken = 0;
  for (uint32_t i = 0; i < 6; ++i) {
    const DeviceOutcome o = i % 3 == 0   ? ObserveAt(ring.get(), tensor, i, options)
                            : i % 3 == 1 ? ObserveAt(ring.get(), rows, i, options)
                                         : ObserveAt(ring.get(), update, i, options);
    ASSERT_TRUE(o == DeviceOutcome::kTaken || o == DeviceOutcome::kFailed) << static_cast<int>(o);
    taken += o == DeviceOutcome::kTaken;
  }
  fake_.advance(100);
  int out = 0;
  DeviceItem item;
  for (; ring->Front(&item); ring->Pop(), ++out) {
    if (!item.measured) {
      EXPECT_EQ(std::string(item.why.text), std::string(p.call) + ": made to fail");
    }
  }
  EXPECT_TRUE(ring->empty());
  EXPECT_EQ(out, taken);
  EXPECT_TRUE(ring->failed());
  const uint64_t requested = fake_.calls("stream_id");
  EXPECT_EQ(ObserveAt(ring.get(), tensor, 9, options), DeviceOutcome::kFailed);
  EXPECT_EQ(fake_.calls("stream_id"), requested);
  ring.reset();
  EXPECT_EQ(Held() > 0, p.leaks);
  fake_.hold(false);
}

INSTANTIATE_TEST_SUITE_P(
    Calls, FailingTensors,
    ::testing::Values(Fault{"stream_id", 0, false}, Fault{"stream_id", 4, false},
                      Fault{"measure_tensors", 0, false}, Fault{"measure_tensors", 2, false},
                      Fault{"check_updates", 0, false}, Fault{"check_updates", 1, false},
                      Fault{"record_event", 0, true}, Fault{"record_event", 3, true},
                      Fault{"event_passed", 0, true}, Fault{"event_passed", 2, true}),
    [](const auto& p) { return std::string(p.param.call) + std::to_string(p.param.nth); });

}  // namespace
}  // namespace plumbline::probes
