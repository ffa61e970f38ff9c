// Tests tensors and updates in flight on one device, on the fake. The evidence equals that of the
// host path byte for byte, in the order of the calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/probes/device_tensors.h"

namespace plumbline::probes {
namespace {

using ::testing::HasSubstr;

TEST_F(TensorRing, EvidenceIsTheHostsByteForByte) {
  const auto ring = Open();
  for (uint32_t seed = 0; seed < 600; ++seed) {
    ExpectHostEvidence<TensorCase>(ring.get(), seed);
    if (HasFailure()) break;
  }
  EXPECT_EQ(fake_.calls("measure_tensors"), 600u);
  EXPECT_EQ(fake_.calls("gather") + fake_.calls("copy"), 0u) << "elements and rows go along";
  EXPECT_TRUE(ring->empty());
}

TEST_F(TensorRing, OfUpdatesToo) {
  const auto ring = Open();
  for (uint32_t seed = 0; seed < 400; ++seed) {
    ExpectHostEvidence<UpdateCase>(ring.get(), seed);
    if (HasFailure()) break;
  }
  EXPECT_EQ(fake_.calls("check_updates"), 400u);
  EXPECT_TRUE(ring->empty());
}

// Rows of a tensor whose rows are not adjacent, and of a tensor whose row is a column of another
// one.
TEST_F(TensorRing, RowsOfAnyStrides) {
  const auto ring = Open();
  std::vector<float> values(40 * 600);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  TensorCall call;
  call.role = "probabilities";
  call.values = TensorView::Dense(values.data(), DType::kF32, 2, 5, 300);
  call.values.stride = {12000, 1200, 2};
  TensorCall columns = call;
  columns.values = TensorView::Dense(values.data(), DType::kF32, 3, 40);
  columns.values.stride = {1, 600};
  TensorCall long_rows = call;
  long_rows.values = TensorView::Dense(values.data(), DType::kF32, 2, 6000);
  long_rows.values.stride = {6000, 2};
  for (const TensorCall& host : {call, columns, long_rows}) {
    for (uint32_t seed = 0; seed < 8; ++seed) {
      TensorCall device = host;
      device.values.device = 0;
      const MeasureOptions options = OptionsOf(seed + 20, true);
      ASSERT_EQ(ObserveAt(ring.get(), device, seed, options), DeviceOutcome::kTaken);
      DeviceItem item;
      ASSERT_TRUE(ring->Front(&item));
      EXPECT_EQ(DeviceEvidence(item), HostEvidence(host, options));
      ring->Pop();
    }
  }
}

// A call that is not captured has two pieces of work in the stream: one for figures, elements and
// rows, and one for the event. This holds for sampled calls and others.
TEST_F(TensorRing, ACallIsOneLaunch) {
  const auto ring = Open();
  fake_.hold(true);
  uint32_t out = 0;
  DeviceItem item;
  const auto expect_one = [&](const auto& device, bool sampled) {
    ASSERT_EQ(ObserveAt(ring.get(), device, out, OptionsOf(out, sampled)), DeviceOutcome::kTaken);
    fake_.advance(1);
    EXPECT_FALSE(ring->Front(&item)) << "its event is still to come";
    fake_.advance(1);
    ASSERT_TRUE(ring->Front(&item)) << out;
    ring->Pop();
    ++out;
  };
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const TensorCase tensor(seed);
    const UpdateCase update(seed);
    for (const bool sampled : {false, true}) {
      expect_one(tensor.device(), sampled);
      expect_one(update.device(), sampled);
    }
  }
  fake_.hold(false);
}

// The tensor is read when the stream reaches the launch. The data that were read do not change
// later.
TEST_F(TensorRing, TheStreamsOrderCounts) {
  const auto ring = Open();
  std::vector<float> values(1000, 1);
  TensorCall call;
  call.values = TensorView::Dense(values.data(), DType::kF32, 1000);
  call.values.device = 0;
  const MeasureOptions options = OptionsOf(1, true);
  fake_.hold(true);
  ASSERT_EQ(ObserveAt(ring.get(), call, 0, options), DeviceOutcome::kTaken);
  values.assign(1000, 7);  // as if a kernel of the trainer, enqueued earlier, had written it
  fake_.advance(100);
  TensorCall host = call;
  host.values.device = -1;
  const std::string expected = HostEvidence(host, options);
  values.assign(1000, 9);  // as if a kernel enqueued later had written it
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  EXPECT_EQ(DeviceEvidence(item), expected);
  ring->Pop();
}

TEST_F(TensorRing, AllKindsComeOutInTheOrderOfTheirCalls) {
  const auto ring = Open();
  const PlainCase router(32, 8);
  const TensorCase tensor(3);
  const UpdateCase update(4);
  const MeasureOptions options = OptionsOf(3, true);
  fake_.hold(true);
  for (uint32_t i = 0; i < 30; ++i) {
    void* stream = Stream(i % 3);
    const DeviceOutcome o = i % 3 == 0 ? Observe(ring.get(), router.call, i, true, stream)
                            : i % 3 == 1
                                ? ObserveAt(ring.get(), tensor.device(), i, options, stream)
                                : ObserveAt(ring.get(), update.device(), i, options, stream);
    ASSERT_EQ(o, DeviceOutcome::kTaken) << error_.text;
  }
  DeviceItem item;
  EXPECT_FALSE(ring->Front(&item));
  fake_.hold(false);
  for (uint32_t i = 0; i < 30; ++i) {
    ASSERT_TRUE(ring->Front(&item));
    EXPECT_EQ(item.tag.call, i);
    EXPECT_EQ(item.plan != nullptr, i % 3 == 0);
    EXPECT_EQ(item.tensor != nullptr, i % 3 == 1);
    EXPECT_EQ(item.update != nullptr, i % 3 == 2);
    if (item.tensor != nullptr) {
      EXPECT_EQ(DeviceEvidence(item), HostEvidence(tensor.host(), options));
    }
    if (item.update != nullptr) {
      EXPECT_EQ(DeviceEvidence(item), HostEvidence(update.host(), options));
    }
    ring->Pop();
  }
}

// Calls that CheckCall accepts for a device, and calls that it refuses.
TEST_F(TensorRing, CallsThatADeviceCannotTake) {
  alignas(8) float values[8] = {};
  TensorCall tensor;
  tensor.values = TensorView::Dense(values, DType::kI32, 8);
  tensor.values.device = 0;
  EXPECT_TRUE(CheckCall(tensor).ok()) << "integers are copied off it";
  tensor.values = TensorView::Dense(reinterpret_cast<const char*>(values) + 1, DType::kF32, 4);
  tensor.values.device = 0;
  EXPECT_THAT(std::string(CheckCall(tensor).message()), HasSubstr("multiple of the element's"));

  UpdateCall update;
  UpdateInput& in = update.input;
  in.before = in.after = in.intended = TensorView::Dense(values, DType::kF32, 8);
  in.before.device = in.after.device = 1;
  EXPECT_EQ(CheckCall(update).message(),
            "intended: expected on device 1 as before, found on the host");
  in.intended.device = 1;
  EXPECT_TRUE(CheckCall(update).ok());
  const int64_t offsets[8] = {};
  update.offsets = TensorView::Dense(offsets, DType::kI64, 8);
  EXPECT_TRUE(CheckCall(update).ok()) << "elements are copied off it";
  update.offsets.device = 1;
  EXPECT_TRUE(CheckCall(update).ok());
  update.offsets.device = 0;
  EXPECT_EQ(CheckCall(update).message(),
            "offsets: expected on device 1 as before, found on device 0");
}

TEST_F(TensorRing, ManyThreadsAndStreamsLoseNothingThatWasTaken) {
  constexpr uint32_t kThreads = 5, kEach = 200;
  DeviceLimits limits;
  limits.ring_bytes = 1 << 20;
  limits.events = 32;
  auto ring = Open(limits);
  const TensorCase tensor(3);
  const UpdateCase update(4);
  const MeasureOptions options = OptionsOf(3, true);
  const std::string tensor_bytes = HostEvidence(tensor.host(), options);
  const std::string update_bytes = HostEvidence(update.host(), options);
  std::atomic<uint32_t> running{kThreads};
  std::atomic<uint64_t> bare{0};
  fake_.hold(true);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < kEach;) {
        bool prepared = false;
        DeviceError error;
        const DeviceTag tag{nullptr, 0, t * kEach + i, true};
        void* stream = Stream((t + i / 50) % 5);
        const DeviceOutcome o =
            t % 2 == 0 ? ring->Observe(tensor.device(), options, stream, tag, &prepared, &error)
                       : ring->Observe(update.device(), options, stream, tag, &prepared, &error);
        bare += o == DeviceOutcome::kTakenWithoutRows;
        ASSERT_LT(o, DeviceOutcome::kRefused) << error.text;
        if (o == DeviceOutcome::kTaken || o == DeviceOutcome::kTakenWithoutRows) {
          ++i;
        } else {
          std::this_thread::yield();  // try again when the drain thread has freed space
        }
      }
      --running;
    });
  }
  std::vector<bool> seen(kThreads * kEach);
  uint64_t out = 0, without = 0;
  const auto drain = [&] {
    DeviceItem item;
    for (; ring->Front(&item); ring->Pop(), ++out) {
      ASSERT_FALSE(seen[item.tag.call]);
      seen[item.tag.call] = true;
      const bool left_out = item.tensor != nullptr ? item.tensor->left_out : item.update->left_out;
      without += left_out;
      if (left_out) continue;
      EXPECT_EQ(DeviceEvidence(item), item.tensor != nullptr ? tensor_bytes : update_bytes);
    }
  };
  while (running > 0) {
    fake_.advance(3);
    drain();
  }
  for (std::thread& t : threads) t.join();
  fake_.hold(false);
  drain();
  EXPECT_EQ(out, uint64_t{kThreads} * kEach);
  EXPECT_EQ(without, bare.load());
  ring.reset();
  EXPECT_EQ(Held(), 0u);
}

}  // namespace
}  // namespace plumbline::probes
