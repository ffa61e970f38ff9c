// Tests calls in flight on one device, on the fake: the returned items, their order, and losses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "kernels/evidence/routing.h"
#include "probes/device/ring.h"
#include "probes/routing_probe.h"
#include "tests/probes/device_case.h"

namespace plumbline::probes {
namespace {

using ::testing::HasSubstr;

v1::Routing Evidence(const DeviceItem& item) {
  v1::Routing routing;
  EXPECT_TRUE(item.measured);
  const absl::Status s =
      FinishRouting(item.call, *item.plan, *item.raw, item.tag.sampled, kMaxSampleBytes, &routing);
  EXPECT_TRUE(s.ok()) << s;
  return routing;
}

// The evidence has the same bytes if the host or the device measured, including rows.
TEST_F(Ring, EvidenceIsTheHostsBitForBit) {
  const auto ring = Open();
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const DeviceCase c(seed, 900);
    const bool sampled = seed % 3 != 0;
    v1::Routing host;
    ASSERT_TRUE(MeasureRouting(c.host(), sampled, kMaxSampleBytes, &host).ok());
    ASSERT_EQ(Observe(ring.get(), c.device(), seed, sampled, Stream(seed % 5)),
              DeviceOutcome::kTaken);
    DeviceItem item;
    ASSERT_TRUE(ring->Front(&item));
    EXPECT_EQ(item.tag.call, seed);
    EXPECT_EQ(item.tag.step, 5);
    const v1::Routing device = Evidence(item);
    EXPECT_EQ(device.SerializeAsString(), host.SerializeAsString());
    EXPECT_EQ(device.has_sample(), sampled);
    ring->Pop();
  }
  EXPECT_TRUE(ring->empty());
}

// The tensors are read when the stream reaches the launch. The data that were read do not change
// later.
TEST_F(Ring, TheStreamsOrderCounts) {
  const auto ring = Open();
  PlainCase c(32, 8);
  fake_.hold(true);
  c.scores()[0] = 1;
  ASSERT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kTaken);
  c.scores()[0] = 1000;  // as if a kernel of the trainer, enqueued earlier, had written it
  fake_.advance(100);
  c.scores()[0] = 2000;  // as if a kernel enqueued later had written it
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  EXPECT_EQ(Evidence(item).summary().logit_abs_max(), 1000);
  ring->Pop();
}

TEST_F(Ring, HandsOnInOrderWhatHasArrived) {
  const auto ring = Open();
  const PlainCase c(32, 8);
  fake_.hold(true);
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_EQ(Observe(ring.get(), c.call, i, false, Stream(i)), DeviceOutcome::kTaken);
  }
  DeviceItem item;
  EXPECT_FALSE(ring->Front(&item));
  fake_.advance(1);  // the kernels, not the events
  EXPECT_FALSE(ring->Front(&item));
  fake_.advance(1);
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(ring->Front(&item));
    EXPECT_EQ(item.tag.call, i);
    ring->Pop();
  }
  EXPECT_FALSE(ring->Front(&item));
}

TEST_F(Ring, WithoutAFreeEventTheCallIsRefused) {
  DeviceLimits limits;
  limits.events = 2;
  const auto ring = Open(limits);
  const PlainCase c(32, 8);
  fake_.hold(true);
  EXPECT_EQ(Observe(ring.get(), c.call, 0), DeviceOutcome::kTaken);
  EXPECT_EQ(Observe(ring.get(), c.call, 1), DeviceOutcome::kTaken);
  EXPECT_EQ(Observe(ring.get(), c.call, 2), DeviceOutcome::kRingFull);
  EXPECT_EQ(fake_.calls("measure"), 2u);
  fake_.advance(100);
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  ring->Pop();
  EXPECT_EQ(Observe(ring.get(), c.call, 3), DeviceOutcome::kTaken);
  fake_.hold(false);
  std::vector<uint32_t> calls;
  for (; ring->Front(&item); ring->Pop()) calls.push_back(item.tag.call);
  EXPECT_EQ(calls, (std::vector<uint32_t>{1, 3}));
}

TEST_F(Ring, RowsAreGivenUpBeforeSummariesAndThoseAtLast) {
  DeviceLimits limits;
  limits.ring_bytes = 128 << 10;
  const auto ring = Open(limits);
  const PlainCase c(512, 8);  // 16 KiB of scores, 8 KiB of choices
  fake_.hold(true);
  int whole = 0, bare = 0, refused = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    const DeviceOutcome o = Observe(ring.get(), c.call, i);
    if (o == DeviceOutcome::kTaken) ++whole;
    if (o == DeviceOutcome::kTakenWithoutRows) ++bare;
    if (o == DeviceOutcome::kRingFull) ++refused;
  }
  EXPECT_GT(whole, 1);
  EXPECT_GT(bare, 1);
  EXPECT_EQ(whole + bare + refused, 100);
  EXPECT_GT(refused, 0);
  EXPECT_TRUE(ring->crowded());
  fake_.hold(false);
  DeviceItem item;
  for (; ring->Front(&item); ring->Pop()) {
    const v1::Routing routing = Evidence(item);
    EXPECT_EQ(routing.summary().tokens(), 512u);
    if (routing.has_sample()) {
      --whole;
    } else {
      EXPECT_THAT(routing.no_sample_reason(), HasSubstr("no room for a sample of 24576 bytes"));
      --bare;
    }
  }
  EXPECT_EQ(whole, 0);
  EXPECT_EQ(bare, 0);
  EXPECT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kTaken);
  ASSERT_TRUE(ring->Front(&item));
  ring->Pop();
}

TEST_F(Ring, RowsAboveTheLimitGiveWhatTheHostGives) {
  DeviceLimits limits;
  limits.sample_max_bytes = 100;
  const auto ring = Open(limits);
  const PlainCase c(32, 8);
  ASSERT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kTaken);
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  v1::Routing routing;
  ASSERT_TRUE(FinishRouting(item.call, *item.plan, *item.raw, true, 100, &routing).ok());
  EXPECT_THAT(routing.no_sample_reason(), HasSubstr("exceeds the limit of 100"));
  EXPECT_EQ(fake_.calls("copy"), 0u);
  ring->Pop();
}

// The number of busy streams is limited by the number of workspaces. A stream that is done frees
// its workspace.
TEST_F(Ring, EachStreamHasItsWorkspace) {
  const auto ring = Open();
  const PlainCase c(32, 8);
  fake_.hold(true);
  for (uint32_t i = 0; i < kDeviceStreams; ++i) {
    EXPECT_EQ(Observe(ring.get(), c.call, i, false, Stream(i)), DeviceOutcome::kTaken);
    EXPECT_EQ(Observe(ring.get(), c.call, i, false, Stream(i)), DeviceOutcome::kTaken);
  }
  EXPECT_EQ(Observe(ring.get(), c.call, 9, false, Stream(99)), DeviceOutcome::kTooManyStreams);
  fake_.advance(100);
  DeviceItem item;
  for (; ring->Front(&item); ring->Pop()) EXPECT_TRUE(item.measured);
  EXPECT_EQ(Observe(ring.get(), c.call, 9, false, Stream(99)), DeviceOutcome::kTaken);
  fake_.advance(100);
  ASSERT_TRUE(ring->Front(&item));
  ring->Pop();
}

TEST_F(Ring, EachWidthAllocatesOnce) {
  const auto ring = Open();
  DeviceItem item;
  uint64_t allocated = 0;
  for (const int experts : {8, 64, 65, 128, 200, 256, 512, 8, 300}) {
    const PlainCase c(4, experts);
    bool prepared = false;
    ASSERT_EQ(ring->Observe(c.call, nullptr, {}, &prepared, &error_), DeviceOutcome::kTaken);
    const uint64_t now = fake_.calls("allocate");
    EXPECT_EQ(prepared, now != allocated) << experts;
    allocated = now;
    ASSERT_TRUE(ring->Front(&item));
    ring->Pop();
  }
  EXPECT_EQ(allocated, 4u * kDeviceStreams);
}

TEST_F(Ring, ShortMemoryMeansFewerStreams) {
  const auto ring = Open();
  const PlainCase c(4, 8);
  fake_.fail("allocate", 1, kDeviceFailed, true);
  EXPECT_EQ(Observe(ring.get(), c.call, 0, false, Stream(1)), DeviceOutcome::kTaken);
  fake_.hold(true);
  EXPECT_EQ(Observe(ring.get(), c.call, 0, false, Stream(1)), DeviceOutcome::kTaken);
  EXPECT_EQ(Observe(ring.get(), c.call, 1, false, Stream(2)), DeviceOutcome::kTooManyStreams);
  fake_.hold(false);
  DeviceItem item;
  for (; ring->Front(&item); ring->Pop()) EXPECT_TRUE(item.measured);
}

TEST_F(Ring, NoMemoryAtAllIsAFailureOfThatWidth) {
  const auto ring = Open();
  const PlainCase narrow(4, 8), wide(4, 100);
  fake_.fail("allocate", 0, kDeviceFailed, true);
  EXPECT_EQ(Observe(ring.get(), narrow.call), DeviceOutcome::kFailed);
  fake_.reset();
  EXPECT_EQ(Observe(ring.get(), narrow.call), DeviceOutcome::kFailed);
  EXPECT_STREQ(error_.text, "allocate: made to fail");
  EXPECT_EQ(Observe(ring.get(), wide.call), DeviceOutcome::kTaken);
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  ring->Pop();
}

TEST_F(Ring, NothingIsGivenToAStreamThatIsCaptured) {
  const auto ring = Open();
  const PlainCase c(32, 8);
  fake_.capture(Stream(1), true);
  EXPECT_EQ(Observe(ring.get(), c.call, 0, true, Stream(1)), DeviceOutcome::kCapturing);
  EXPECT_EQ(fake_.calls("allocate"), 0u);
  EXPECT_EQ(fake_.calls("measure") + fake_.calls("copy") + fake_.calls("record_event"), 0u);
  EXPECT_EQ(Observe(ring.get(), c.call, 1, true, Stream(2)), DeviceOutcome::kTaken);
  fake_.capture(Stream(1), false);
  EXPECT_EQ(Observe(ring.get(), c.call, 2, true, Stream(1)), DeviceOutcome::kTaken);
  DeviceItem item;
  for (; ring->Front(&item); ring->Pop()) EXPECT_TRUE(item.measured);
}

TEST_F(Ring, WhatCannotBeMeasuredIsRefusedAndHoldsNothing) {
  const auto ring = Open();
  PlainCase c(32, 8);
  c.call.input.top_k = 9;
  EXPECT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kRefused);
  EXPECT_THAT(error_.text, HasSubstr("top_k"));
  c.call.input.top_k = 2;
  c.call.input.topk_indices = {};
  c.call.input.scores.shape[0] = kMaxDeviceTokens + 1;
  EXPECT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kRefused);
  EXPECT_THAT(error_.text, HasSubstr("at most 4194304 rows"));
  fake_.fail("stream_id", 0, kDeviceRefused, false);
  c.call.input.scores.shape[0] = 32;
  EXPECT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kRefused);
  EXPECT_FALSE(ring->failed());
  EXPECT_TRUE(ring->empty());
}

// A contradictory value is detected when the measurement is read.
TEST_F(Ring, ABadIndexIsItsOwnCallsError) {
  const auto ring = Open();
  PlainCase c(32, 8);
  std::vector<int64_t> bad(64, 8);
  c.call.input.topk_indices.data = bad.data();
  ASSERT_EQ(Observe(ring.get(), c.call), DeviceOutcome::kTaken);
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  v1::Routing routing;
  const absl::Status s =
      FinishRouting(item.call, *item.plan, *item.raw, true, kMaxSampleBytes, &routing);
  EXPECT_TRUE(absl::IsInvalidArgument(s)) << s;
  EXPECT_THAT(std::string(s.message()), HasSubstr("topk_indices"));
  ring->Pop();
}

TEST_F(Ring, ManyThreadsAndStreamsLoseNothingThatWasTaken) {
  constexpr uint32_t kThreads = 6, kEach = 400;
  DeviceLimits limits;
  limits.ring_bytes = 1 << 20;
  limits.events = 32;
  auto ring = Open(limits);
  const PlainCase narrow(16, 8), wide(16, 100);
  std::atomic<uint64_t> taken{0};
  std::atomic<uint32_t> running{kThreads};
  fake_.hold(true);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const PlainCase& c = t % 2 == 0 ? narrow : wide;
      for (uint32_t i = 0; i < kEach; ++i) {
        bool prepared = false;
        DeviceError error;
        switch (ring->Observe(c.call, Stream((t + i / 50) % 5), {nullptr, 0, t * kEach + i, true},
                              &prepared, &error)) {
          case DeviceOutcome::kTaken:
          case DeviceOutcome::kTakenWithoutRows:
            ++taken;
            break;
          case DeviceOutcome::kStarting:
          case DeviceOutcome::kRingFull:
          case DeviceOutcome::kTooManyStreams:
            --i;  // try again when the drain thread has freed space
            std::this_thread::yield();
            break;
          default:
            ADD_FAILURE() << error.text;
        }
      }
      --running;
    });
  }
  std::vector<bool> seen(kThreads * kEach);
  uint64_t out = 0;
  const auto drain = [&] {
    DeviceItem item;
    for (; ring->Front(&item); ring->Pop(), ++out) {
      ASSERT_TRUE(item.measured) << item.why.text;
      ASSERT_FALSE(seen[item.tag.call]);
      seen[item.tag.call] = true;
      EXPECT_EQ(Evidence(item).summary().tokens(), 16u);
    }
  };
  while (running > 0) {
    fake_.advance(3);
    drain();
  }
  for (std::thread& t : threads) t.join();
  fake_.hold(false);
  drain();
  EXPECT_EQ(out, taken.load());
  EXPECT_EQ(taken.load(), uint64_t{kThreads} * kEach);
  ring.reset();
  EXPECT_EQ(Held(), 0u);
}

}  // namespace
}  // namespace plumbline::probes
