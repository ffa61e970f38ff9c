// Calls in graphs while other threads observe, capture and drain: each item is whole, none is lost.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/probes/graph_case.h"

namespace plumbline::probes {
namespace {

constexpr int64_t kSteps = 600;
constexpr uint32_t kLater = 40;  // calls that are captured while steps go on
// Sites, by number.
constexpr uintptr_t kGraph = 0, kEager = 1, kFirstLater = 2;

TEST_F(GraphRing, ThreadsDoNotDisturbEachOther) {
  const auto ring = Open();
  const TensorCase c(3);
  const TensorCall device = c.device();
  const MeasureOptions options = OptionsOf(1, false);
  const std::string expected = HostEvidence(c.host(), options);
  ASSERT_EQ(Capture(ring.get(), device, Stream(9), Site(kGraph)), DeviceOutcome::kTaken);
  owner_.stop_conditions[Site(kGraph)] = {true, options};
  for (uint32_t i = 0; i < kLater; ++i)
    owner_.stop_conditions[Site(kFirstLater + i)] = {true, options};

  std::atomic<bool> stepping{true}, failed{false};
  std::atomic<uint64_t> taken{0}, drained{0};
  const auto check = [&](bool fine) {
    if (!fine) failed = true;
  };
  std::thread eager([&] {
    while (stepping) {
      bool prepared = false;
      DeviceError error{};
      const DeviceOutcome outcome =
          ring->Observe(device, options, Stream(5), {Site(kEager), 0, 0, false}, &prepared, &error);
      if (outcome == DeviceOutcome::kTaken) ++taken;
      check(outcome == DeviceOutcome::kTaken || outcome == DeviceOutcome::kRingFull);
    }
  });
  std::thread capturing([&] {
    for (uint32_t i = 0; i < kLater; ++i) {
      DeviceError error{};
      void* stream = Stream(100 + i);
      fake_.capture(stream, true);
      check(ring->Capture(device, stream, replays_, Site(kFirstLater + i), &error) ==
            DeviceOutcome::kTaken);
      fake_.capture(stream, false);
      std::this_thread::yield();
    }
  });
  const auto drain = [&] {
    DeviceItem item;
    for (; ring->Front(&item); ring->Pop(), ++drained) {
      check(item.measured && item.tensor != nullptr && DeviceEvidence(item) == expected);
    }
    check(ring->passed(0));
  };
  std::atomic<bool> draining{true};
  std::thread drainer([&] {
    while (draining) drain();
  });
  uint64_t replayed = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const DeviceOutcome begun = ring->BeginStep(step, &owner_, &error_);
    check(begun == DeviceOutcome::kTaken || begun == DeviceOutcome::kRingFull);
    fake_.replay(Stream(9), replays_);
    if (begun == DeviceOutcome::kTaken) ++replayed;
    check(ring->EndStep(&error_) == DeviceOutcome::kTaken);
  }
  stepping = false;
  eager.join();
  capturing.join();
  draining = false;
  drainer.join();
  drain();
  EXPECT_FALSE(failed);
  EXPECT_FALSE(ring->failed());
  EXPECT_TRUE(ring->empty());
  EXPECT_EQ(drained, taken + replayed);
  EXPECT_GT(replayed, 0u);
  EXPECT_GT(taken, 0u);
}

}  // namespace
}  // namespace plumbline::probes
