// Tests when the replays of a graph are measured, and the duration of each.
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/probes/graph_case.h"

namespace plumbline::probes {
namespace {

// If work is enqueued before the device reaches it, it is measured when the device reaches it.
TEST_F(GraphRing, TheStreamsOrderCounts) {
  const auto ring = Open();
  void* graph = Stream(9);
  const TensorCase c(3);
  ASSERT_EQ(Capture(ring.get(), c.device(), graph, Site(0)), DeviceOutcome::kTaken);
  fake_.hold(true);
  for (int64_t step = 0; step < 20; ++step) {
    const auto number = static_cast<uint32_t>(step);
    ASSERT_EQ(Step(ring.get(), step, graph, Site(0), OptionsOf(number, step % 2 == 0)),
              DeviceOutcome::kTaken);
  }
  DeviceItem item;
  EXPECT_FALSE(ring->Front(&item));
  fake_.advance(6);  // slots, begin, measurement, delivery, slots, the first step's event
  ASSERT_TRUE(ring->Front(&item));
  EXPECT_EQ(EvidenceOf(item, OptionsOf(0, true)), HostEvidence(c.host(), OptionsOf(0, true)));
  ring->Pop();
  EXPECT_FALSE(ring->Front(&item));
  fake_.hold(false);
  for (uint32_t step = 1; step < 20; ++step) {
    ASSERT_TRUE(ring->Front(&item));
    EXPECT_EQ(item.tag.step, step);
    const MeasureOptions options = OptionsOf(step, step % 2 == 0);
    EXPECT_EQ(EvidenceOf(item, options), HostEvidence(c.host(), options));
    ring->Pop();
  }
}

// Each replay is timed by the device's clock, also in steps that are not sampled.
TEST_F(GraphRing, EveryReplayIsTimed) {
  const auto ring = Open();
  void* graph = Stream(9);
  const TensorCase c(3);
  ASSERT_EQ(Capture(ring.get(), c.device(), graph, Site(0)), DeviceOutcome::kTaken);
  for (const bool sampled : {true, false}) {
    ASSERT_EQ(Step(ring.get(), sampled ? 1 : 2, graph, Site(0), OptionsOf(1, sampled), 3),
              DeviceOutcome::kTaken);
    DeviceItem item;
    for (int i = 0; i < 3; ++i, ring->Pop()) {
      ASSERT_TRUE(ring->Front(&item));
      EXPECT_TRUE(item.measured);
      EXPECT_GT(item.gpu_ns, 0u);
      EXPECT_LT(item.gpu_ns, 1'000'000u);
    }
    EXPECT_FALSE(ring->Front(&item));
  }
}

}  // namespace
}  // namespace plumbline::probes
