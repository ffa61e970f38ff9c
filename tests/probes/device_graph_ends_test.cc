// Tests graphs that are created and destroyed, on the fake device. The memory of a graph's calls is
// reused for the next graph, but only when no work can access it any more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/probes/graph_case.h"

namespace plumbline::probes {
namespace {

class GraphEnds : public GraphRing {
 protected:
  // Removes the front item and returns its evidence.
  std::string Next(DeviceRing* ring, const MeasureOptions& options) {
    DeviceItem item;
    if (!ring->Front(&item)) return "nothing";
    if (!item.measured) return item.why.text;
    std::string evidence = EvidenceOf(item, options);
    ring->Pop();
    return evidence;
  }
  const MeasureOptions plain_ = OptionsOf(1, false);
};

// Creates one graph after the other, in steps or between them, of every kind and of many sizes.
TEST_F(GraphEnds, TwoThousandGraphsOneAfterTheOther) {
  auto ring = Open();
  const uint64_t memory_before = fake_.calls("allocate") - fake_.calls("free_memory");
  uint64_t after_first = 0;
  const PlainCase router(40, 16);
  const ProductCase product(20, 30, 10);
  RoutingCall router_host = router.call;
  for (TensorView* v : Tensors(router_host.input)) v->device = -1;
  for (uint32_t i = 0; i < 2000; ++i) {
    SCOPED_TRACE(i);
    void* stream = Stream(100 + i % 7);
    const MeasureOptions options = OptionsOf(i, i % 3 == 0);
    const auto expect = [&](const auto& device, const auto& host) {
      if (i % 5 == 1) {  // captured, and destroyed before any step
        ASSERT_EQ(Capture(ring.get(), device, stream, Site(1)), DeviceOutcome::kTaken);
        fake_.destroy(stream);
      }
      ASSERT_EQ(Capture(ring.get(), device, stream, Site(0)), DeviceOutcome::kTaken);
      ASSERT_EQ(Step(ring.get(), i, stream, Site(0), options), DeviceOutcome::kTaken);
      fake_.destroy(stream);
      ASSERT_EQ(Next(ring.get(), options), HostEvidence(host, options));
    };
    const TensorCase tensor(i % 250);
    const UpdateCase update(i % 250);
    if (i % 4 == 0) expect(tensor.device(), tensor.host());
    if (i % 4 == 1) expect(update.device(), update.host());
    if (i % 4 == 2) expect(router.call, router_host);
    if (i % 4 == 3) expect(product.device(), product.host);
    if (HasFailure()) return;
    if (i == 500) after_first = fake_.calls("allocate");
  }
  EXPECT_LE(fake_.calls("allocate"), after_first + 2) << "what was gone is used again";
  EXPECT_EQ(Next(ring.get(), plain_), "nothing");
  EXPECT_TRUE(ring->empty());
  ring.reset();
  EXPECT_EQ(fake_.calls("allocate") - fake_.calls("free_memory"), memory_before)
      << "no graph is left: all is freed";
}

TEST_F(GraphEnds, FullIsStatedAndEnds) {
  const auto ring = Open();
  const TensorCase c(3);
  for (uint32_t i = 0; i < kMaxCaptured; ++i) {
    ASSERT_EQ(Capture(ring.get(), c.device(), Stream(100 + i), Site(i)), DeviceOutcome::kTaken);
  }
  EXPECT_EQ(Capture(ring.get(), c.device(), Stream(9), Site(0)), DeviceOutcome::kTooManyCaptured);
  fake_.destroy(Stream(600));
  EXPECT_EQ(Capture(ring.get(), c.device(), Stream(9), Site(7000)), DeviceOutcome::kTaken);
  EXPECT_EQ(Capture(ring.get(), c.device(), Stream(9), Site(0)), DeviceOutcome::kTooManyCaptured);
  EXPECT_EQ(Step(ring.get(), 1, Stream(9), Site(7000), plain_), DeviceOutcome::kTaken);
  EXPECT_EQ(Next(ring.get(), plain_), HostEvidence(c.host(), plain_));
  EXPECT_EQ(Step(ring.get(), 2, Stream(601), Site(501), plain_), DeviceOutcome::kTaken);
  EXPECT_EQ(Next(ring.get(), plain_), HostEvidence(c.host(), plain_));
}

// The graph is destroyed while a replay is in progress. The replay is measured, and its memory is
// not reused until it is done (the fake checks this).
TEST_F(GraphEnds, WhatIsUnderWayKeepsItsMemory) {
  const auto ring = Open();
  const TensorCase first(3), second(4);
  ASSERT_EQ(Capture(ring.get(), first.device(), Stream(9), Site(0)), DeviceOutcome::kTaken);
  fake_.hold(true);
  ASSERT_EQ(Step(ring.get(), 1, Stream(9), Site(0), plain_), DeviceOutcome::kTaken);
  fake_.destroy(Stream(9));
  const uint64_t allocated = fake_.calls("allocate");
  ASSERT_EQ(Capture(ring.get(), second.device(), Stream(10), Site(1)), DeviceOutcome::kTaken);
  EXPECT_EQ(fake_.calls("allocate"), allocated + 1);
  fake_.hold(false);
  ASSERT_EQ(Capture(ring.get(), first.device(), Stream(11), Site(2)), DeviceOutcome::kTaken);
  EXPECT_EQ(fake_.calls("allocate"), allocated + 1) << "the first one's is used again";
  EXPECT_EQ(Next(ring.get(), plain_), HostEvidence(first.host(), plain_));
  ASSERT_EQ(Step(ring.get(), 2, Stream(11), Site(2), plain_), DeviceOutcome::kTaken);
  EXPECT_EQ(Next(ring.get(), plain_), HostEvidence(first.host(), plain_));
}

// The graph is destroyed in an open step. If its slot were reused now, the slot would be open and
// point to the old call's section.
TEST_F(GraphEnds, TheSlotOfAnOpenStepIsNotGivenAway) {
  const auto ring = Open();
  const TensorCase first(3), second(4);
  ASSERT_EQ(Capture(ring.get(), first.device(), Stream(9), Site(0)), DeviceOutcome::kTaken);
  owner_.stop_conditions = {{Site(0), {true, plain_}}};
  ASSERT_EQ(ring->BeginStep(1, &owner_, &error_), DeviceOutcome::kTaken);
  fake_.replay(Stream(9), replays_);
  fake_.destroy(Stream(9));
  for (uint32_t i = 0; i < 1500; ++i) {  // these calls may reuse each other's slots
    ASSERT_EQ(Capture(ring.get(), second.device(), Stream(10), Site(1)), DeviceOutcome::kTaken);
    fake_.replay(Stream(10), replays_);
    fake_.destroy(Stream(10));
  }
  ASSERT_EQ(ring->EndStep(&error_), DeviceOutcome::kTaken);
  EXPECT_EQ(Next(ring.get(), plain_), HostEvidence(first.host(), plain_));
  EXPECT_EQ(Next(ring.get(), plain_), "nothing");
  // Now the slot is free.
  for (uint32_t i = 0; i < kMaxCaptured; ++i) {
    ASSERT_EQ(Capture(ring.get(), second.device(), Stream(11), Site(2)), DeviceOutcome::kTaken)
        << i;
  }
}

// Records that are still unread name calls whose graphs no longer exist.
TEST_F(GraphEnds, RecordsOutliveTheirGraphs) {
  const auto ring = Open();
  std::vector<std::string> expected;
  for (uint32_t i = 0; i < 50; ++i) {
    const TensorCase c(i);
    const MeasureOptions options = OptionsOf(i, true);
    ASSERT_EQ(Capture(ring.get(), c.device(), Stream(9), Site(0)), DeviceOutcome::kTaken);
    ASSERT_EQ(Step(ring.get(), i, Stream(9), Site(0), options), DeviceOutcome::kTaken);
    fake_.destroy(Stream(9));
    expected.push_back(HostEvidence(c.host(), options));
  }
  for (uint32_t i = 0; i < 50; ++i) EXPECT_EQ(Next(ring.get(), OptionsOf(i, true)), expected[i]);
}

// A site has calls in two graphs. When the first graph is destroyed, the other calls are numbered
// from the start.
TEST_F(GraphEnds, TheOtherCallsOfASiteAreNumberedAgain) {
  const auto ring = Open();
  const TensorCase c(3);
  for (const uintptr_t stream : {9, 10, 11}) {
    ASSERT_EQ(Capture(ring.get(), c.device(), Stream(stream), Site(0)), DeviceOutcome::kTaken);
  }
  fake_.destroy(Stream(9));
  owner_.stop_conditions = {{Site(0), {true, plain_}}};
  ASSERT_EQ(ring->BeginStep(1, &owner_, &error_), DeviceOutcome::kTaken);
  fake_.replay(Stream(10), replays_);
  fake_.replay(Stream(11), replays_);
  ASSERT_EQ(ring->EndStep(&error_), DeviceOutcome::kTaken);
  EXPECT_EQ(owner_.reserved, 16u) << "two calls, eight replays";
  DeviceItem item;
  for (const uint32_t number : {0u, 1u}) {
    ASSERT_TRUE(ring->Front(&item));
    EXPECT_EQ(item.tag.call, number);
    ring->Pop();
  }
}

// If the end of a graph cannot be watched, its calls are not measured.
TEST_F(GraphEnds, AGraphThatCannotBeWatchedTakesNoCall) {
  const auto ring = Open();
  const TensorCase c(3);
  fake_.fail("watch_graph", 0, kDeviceFailed, false);
  EXPECT_EQ(Capture(ring.get(), c.device(), Stream(9), Site(0)), DeviceOutcome::kFailed);
  EXPECT_THAT(error_.text, ::testing::HasSubstr("watch_graph: made to fail"));
  EXPECT_FALSE(ring->has_graphs());
  EXPECT_FALSE(ring->failed());
  EXPECT_EQ(Capture(ring.get(), c.device(), Stream(9), Site(0)), DeviceOutcome::kTaken);
}

// One thread captures and destroys graphs, one runs steps, one reads. Each item must be complete.
TEST_F(GraphEnds, ThreadsDoNotDisturbEachOther) {
  const auto ring = Open();
  const TensorCase c(3);
  const TensorCall device = c.device();
  const std::string expected = HostEvidence(c.host(), plain_);
  ASSERT_EQ(Capture(ring.get(), device, Stream(9), Site(0)), DeviceOutcome::kTaken);
  owner_.stop_conditions = {{Site(0), {true, plain_}}, {Site(1), {true, plain_}}};
  std::atomic<bool> stepping{true}, failed{false};
  std::atomic<uint64_t> drained{0};
  const auto check = [&](bool fine) {
    if (!fine) failed = true;
  };
  std::thread capturing([&] {
    for (uint32_t i = 0; stepping; ++i) {
      DeviceError error{};
      void* stream = Stream(100 + i % 3);
      fake_.capture(stream, true);
      const DeviceOutcome outcome = ring->Capture(device, stream, replays_, Site(i % 2), &error);
      fake_.capture(stream, false);
      check(outcome == DeviceOutcome::kTaken);
      fake_.destroy(stream);
    }
  });
  const auto drain = [&] {
    DeviceItem item;
    for (; ring->Front(&item); ring->Pop(), ++drained) {
      check(item.measured && item.tensor != nullptr && DeviceEvidence(item) == expected);
    }
  };
  std::thread drainer([&] {
    while (stepping) drain();
  });
  uint64_t replayed = 0;
  for (int64_t step = 0; step < 600; ++step) {
    const DeviceOutcome begun = ring->BeginStep(step, &owner_, &error_);
    check(begun == DeviceOutcome::kTaken || begun == DeviceOutcome::kRingFull);
    fake_.replay(Stream(9), replays_);
    if (begun == DeviceOutcome::kTaken) ++replayed;
    check(ring->EndStep(&error_) == DeviceOutcome::kTaken);
  }
  stepping = false;
  capturing.join();
  drainer.join();
  drain();
  EXPECT_FALSE(failed);
  EXPECT_FALSE(ring->failed());
  EXPECT_EQ(drained, replayed);
  EXPECT_GT(replayed, 0u);
}

}  // namespace
}  // namespace plumbline::probes
