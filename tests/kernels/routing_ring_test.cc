// The ring of measurements in flight, over a device that finishes when the test says so.
#include "kernels/routing_ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <mutex>
#include <thread>

#include "tests/kernels/routing_case.h"

namespace plumbline {
namespace {

// Computes on Launch what a device would, and writes it to the slot when its event passes.
class FakeDevice {
 public:
  struct Slot {
    RoutingRaw* result = nullptr;
    std::shared_ptr<std::atomic<bool>> event;
    int number = -1;
  };

  size_t WorkspaceBytes(int64_t, int) const { return 64; }

  absl::Status Allocate(size_t, Slot* slot) {
    if (allocated == most_slots) return absl::InternalError("out of memory");
    slot->result = memory_.emplace_back(std::make_unique<RoutingRaw>()).get();
    slot->event = std::make_shared<std::atomic<bool>>(false);
    slot->number = allocated++;
    return absl::OkStatus();
  }
  void Free(Slot* slot) {
    slot->result = nullptr;
    ++freed;
  }
  absl::Status Launch(const RoutingInput& in, const Slot& slot, size_t, void*, RoutingPlan* plan) {
    if (absl::Status status = PlanRouting(in, plan); !status.ok()) return status;
    *slot.event = false;
    const std::lock_guard lock(mutex_);
    pending_.push_back({slot, MeasureRouting(*plan, 1)});
    return absl::OkStatus();
  }
  absl::StatusOr<bool> Done(const Slot& slot) const {
    if (broken) return absl::InternalError("device lost");
    return slot.event->load();
  }

  // The stream gets past its next `n` calls.
  void Advance(int n) {
    const std::lock_guard lock(mutex_);
    for (; n > 0 && !pending_.empty(); --n) {
      *pending_.front().first.result = pending_.front().second;
      *pending_.front().first.event = true;
      pending_.pop_front();
    }
  }

  int most_slots = 1000;
  int allocated = 0;
  int freed = 0;
  std::atomic<bool> broken{false};

 private:
  std::vector<std::unique_ptr<RoutingRaw>> memory_;  // freed with the device
  std::mutex mutex_;
  std::deque<std::pair<Slot, RoutingRaw>> pending_;
};

using Ring = RoutingRing<FakeDevice, int>;

std::unique_ptr<Ring> MakeRing(FakeDevice* device, uint32_t slots) {
  auto ring = Ring::Create(device, {.slots = slots, .tokens = 100000, .experts = kMaxExperts});
  EXPECT_TRUE(ring.ok());
  return *std::move(ring);
}

TEST(RoutingRing, HandsOnInOrderWhatHasArrived) {
  FakeDevice device;
  const auto ring = MakeRing(&device, 4);
  std::deque<RoutingCase> cases;
  for (int i = 0; i < 3; ++i) {
    cases.push_back(CaseMaker(static_cast<uint32_t>(i)).Make());
    ASSERT_TRUE(ring->Observe(cases.back().in, nullptr, i).ok());
  }
  std::vector<int> tags;
  const auto take = [&](int tag, absl::StatusOr<RoutingStats>& stats) {
    tags.push_back(tag);
    RoutingStats want;
    ASSERT_TRUE(SummariseRouting(cases[static_cast<size_t>(tag)].in, &want).ok());
    ASSERT_TRUE(stats.ok());
    EXPECT_EQ(stats->load, want.load);
    EXPECT_EQ(stats->tied, want.tied);
    EXPECT_EQ(stats->pools.inverted_cells, want.pools.inverted_cells);
  };
  EXPECT_EQ(ring->Drain(take), 0);
  device.Advance(2);
  EXPECT_EQ(ring->Drain(take), 2);
  EXPECT_EQ(ring->Drain(take), 0);
  device.Advance(1);
  EXPECT_EQ(ring->Drain(take), 1);
  EXPECT_EQ(tags, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(ring->in_flight(), 0u);
}

TEST(RoutingRing, AFullRingLosesAndCounts) {
  FakeDevice device;
  const auto ring = MakeRing(&device, 2);
  const RoutingCase c = CaseMaker(1).Make();
  ASSERT_TRUE(ring->Observe(c.in, nullptr, 0).ok());
  ASSERT_TRUE(ring->Observe(c.in, nullptr, 1).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(ring->Observe(c.in, nullptr, 2)));
  EXPECT_EQ(ring->lost(), 1u);
  device.Advance(1);
  int last = -1;
  const auto take = [&](int tag, absl::StatusOr<RoutingStats>&) { last = tag; };
  EXPECT_EQ(ring->Drain(take), 1);
  EXPECT_TRUE(ring->Observe(c.in, nullptr, 3).ok());
  device.Advance(2);
  EXPECT_EQ(ring->Drain(take), 2);
  EXPECT_EQ(last, 3);
}

TEST(RoutingRing, WhatCannotBeMeasuredTakesNoSlot) {
  FakeDevice device;
  auto ring = Ring::Create(&device, {.slots = 1, .tokens = 8, .experts = 4});
  ASSERT_TRUE(ring.ok());
  RoutingCase c;
  c.in.top_k = 1;
  const auto zero = [](int64_t, int64_t) { return 0.0; };
  c.in.scores = MakeTensor(&c, DType::kF32, 9, 4, Layout::kDense, zero);
  EXPECT_TRUE(absl::IsOutOfRange((*ring)->Observe(c.in, nullptr, 0)));
  EXPECT_EQ((*ring)->lost(), 1u);
  c.in.scores = MakeTensor(&c, DType::kF32, 8, 4, Layout::kDense, zero);
  c.in.top_k = 5;
  EXPECT_TRUE(absl::IsInvalidArgument((*ring)->Observe(c.in, nullptr, 0)));
  c.in.top_k = 4;
  EXPECT_TRUE((*ring)->Observe(c.in, nullptr, 0).ok());
  device.Advance(1);
}

TEST(RoutingRing, ABadValueIsItsOwnCallsError) {
  FakeDevice device;
  const auto ring = MakeRing(&device, 2);
  RoutingCase c;
  c.in.top_k = 1;
  c.in.scores =
      MakeTensor(&c, DType::kF32, 3, 4, Layout::kDense, [](int64_t, int64_t j) { return 1.0 * j; });
  c.in.topk_indices =
      MakeTensor(&c, DType::kI32, 3, 1, Layout::kDense, [](int64_t, int64_t) { return 7; });
  ASSERT_TRUE(ring->Observe(c.in, nullptr, 0).ok());
  c.in.topk_indices = {};
  ASSERT_TRUE(ring->Observe(c.in, nullptr, 1).ok());
  device.Advance(2);
  std::vector<bool> fine;
  ring->Drain([&](int, absl::StatusOr<RoutingStats>& stats) { fine.push_back(stats.ok()); });
  EXPECT_EQ(fine, (std::vector<bool>{false, true}));
}

TEST(RoutingRing, AFailedDeviceIsToldAndUsedNoMore) {
  FakeDevice device;
  const RoutingCase c = CaseMaker(1).Make();
  {
    const auto ring = MakeRing(&device, 3);
    ASSERT_TRUE(ring->Observe(c.in, nullptr, 0).ok());
    device.broken = true;
    int errors = 0;
    ring->Drain([&](int, absl::StatusOr<RoutingStats>& stats) { errors += stats.ok() ? 0 : 1; });
    EXPECT_EQ(errors, 1);
    EXPECT_TRUE(absl::IsUnavailable(ring->Observe(c.in, nullptr, 1)));
    EXPECT_EQ(ring->lost(), 1u);
  }
  EXPECT_EQ(device.freed, 2);
  device.Advance(1);  // may still write: the slot lives
}

TEST(RoutingRing, WhatIsUnderWayIsNotFreed) {
  FakeDevice device;
  const RoutingCase c = CaseMaker(1).Make();
  {
    const auto ring = MakeRing(&device, 3);
    ASSERT_TRUE(ring->Observe(c.in, nullptr, 0).ok());
    ASSERT_TRUE(ring->Observe(c.in, nullptr, 1).ok());
    device.Advance(1);
  }
  EXPECT_EQ(device.freed, 2);
  device.Advance(1);
}

TEST(RoutingRing, ShortMemoryFreesWhatWasHad) {
  FakeDevice device;
  device.most_slots = 3;
  EXPECT_FALSE(Ring::Create(&device, {.slots = 5, .tokens = 8, .experts = 4}).ok());
  EXPECT_EQ(device.freed, 3);
}

TEST(RoutingRing, TwoThreadsLoseNothingThatWasTaken) {
  FakeDevice device;
  const auto ring = MakeRing(&device, 4);
  const RoutingCase c = CaseMaker(3).Make();
  constexpr int kCalls = 3000;
  int accepted = 0;
  std::atomic<bool> done{false};
  std::thread trainer([&] {
    for (int i = 0; i < kCalls; ++i) {
      if (ring->Observe(c.in, nullptr, i).ok()) ++accepted;
      if (i % 3 == 0) device.Advance(3);
    }
    device.Advance(kCalls);
    done = true;
  });
  int seen = 0;
  int last = -1;
  const auto take = [&](int tag, absl::StatusOr<RoutingStats>& stats) {
    EXPECT_GT(tag, last);
    EXPECT_TRUE(stats.ok());
    last = tag;
    ++seen;
  };
  while (!done) ring->Drain(take);
  trainer.join();
  ring->Drain(take);
  EXPECT_EQ(seen, accepted);
  EXPECT_EQ(static_cast<uint64_t>(kCalls - accepted), ring->lost());
}

}  // namespace
}  // namespace plumbline
