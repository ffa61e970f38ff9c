// Tests calls in CUDA graphs, on the fake device: captured once, measured by the replays of due
// steps. The evidence equals that of the host path byte for byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "tests/probes/graph_case.h"

namespace plumbline::probes {
namespace {

using ::testing::HasSubstr;

TEST_F(GraphRing, EvidenceIsTheHostsByteForByte) {
  const auto ring = Open();
  std::deque<TensorCase> tensors;
  std::deque<UpdateCase> updates;
  std::deque<DeviceCase> routers;
  std::deque<ProductCase> products;
  uint32_t number = 0;
  const auto expect_hosts = [&](const auto& device, const auto& host) {
    SCOPED_TRACE(number);
    void* stream = Stream(100 + number);
    void* site = Site(number);
    const MeasureOptions options = OptionsOf(number, number % 3 != 0);
    ASSERT_EQ(Capture(ring.get(), device, stream, site), DeviceOutcome::kTaken) << error_.text;
    ASSERT_EQ(Step(ring.get(), number, stream, site, options), DeviceOutcome::kTaken)
        << error_.text;
    DeviceItem item;
    ASSERT_TRUE(ring->Front(&item));
    ASSERT_TRUE(item.measured) << item.why.text;
    EXPECT_EQ(item.tag.site, site);
    EXPECT_EQ(item.tag.step, number);
    EXPECT_EQ(item.tag.call, 0u);
    EXPECT_EQ(item.tag.sampled, options.sampled);
    EXPECT_EQ(EvidenceOf(item, options), HostEvidence(host, options));
    ring->Pop();
    ASSERT_FALSE(ring->Front(&item));
    ++number;
  };
  for (uint32_t seed = 0; seed < 250 && !HasFailure(); ++seed) {
    const TensorCase& c = tensors.emplace_back(seed);
    expect_hosts(c.device(), c.host());
  }
  for (uint32_t seed = 0; seed < 250 && !HasFailure(); ++seed) {
    const UpdateCase& c = updates.emplace_back(seed);
    expect_hosts(c.device(), c.host());
  }
  for (uint32_t seed = 0; seed < 250 && !HasFailure(); ++seed) {
    const DeviceCase& c = routers.emplace_back(seed, 400);
    expect_hosts(c.device(), c.host());
  }
  for (uint32_t seed = 0; seed < 40 && !HasFailure(); ++seed) {
    const ProductCase& c = products.emplace_back(1 + seed * 7 % 50, 1 + seed * 5 % 40, 1 + seed);
    expect_hosts(c.device(), c.host);
  }
  EXPECT_TRUE(ring->empty());
}

// One graph of four calls in a thousand steps, which are due or not, sampled or not, replayed 0 to
// 3 times, and read late. Between the replays the trainer's values change.
TEST_F(GraphRing, AThousandSteps) {
  DeviceLimits limits;
  limits.ring_bytes = 64 << 20;
  const auto ring = Open(limits);
  void* graph = Stream(9);
  std::vector<float> values(3000, 1);
  TensorCall tensor;
  tensor.values = TensorView::Dense(values.data(), DType::kF32, 3000);
  TensorCall on_device = tensor;
  on_device.values.device = 0;
  PlainCase router(40, 8);
  ProductCase product(20, 30, 10);
  const UpdateCase update(11);
  // Two calls of one site, and two of others.
  ASSERT_EQ(Capture(ring.get(), on_device, graph, Site(0)), DeviceOutcome::kTaken);
  ASSERT_EQ(Capture(ring.get(), on_device, graph, Site(0)), DeviceOutcome::kTaken);
  ASSERT_EQ(Capture(ring.get(), router.call, graph, Site(1)), DeviceOutcome::kTaken);
  ASSERT_EQ(Capture(ring.get(), product.device(), graph, Site(2)), DeviceOutcome::kTaken);
  ASSERT_EQ(Capture(ring.get(), update.device(), graph, Site(3)), DeviceOutcome::kTaken);
  RoutingCall router_host = router.call;
  for (TensorView* v : Tensors(router_host.input)) v->device = -1;

  struct Expected {
    int64_t step;
    void* site;
    uint32_t call;
    bool sampled;
    MeasureOptions options;
    std::string evidence;
  };
  std::deque<Expected> expected;
  std::mt19937 random(5);
  const auto read = [&](size_t records_left) {
    DeviceItem item;
    while (!expected.empty() && ring->Front(&item)) {
      const Expected& e = expected.front();
      ASSERT_TRUE(item.measured) << item.why.text;
      EXPECT_EQ(item.tag.step, e.step);
      EXPECT_EQ(item.tag.site, e.site);
      EXPECT_EQ(item.tag.call, e.call) << "step " << e.step;
      EXPECT_EQ(item.tag.sampled, e.sampled);
      ASSERT_EQ(EvidenceOf(item, e.options), e.evidence) << "step " << e.step;
      ring->Pop();
      expected.pop_front();
      if (records_left > 0 && random() % 50 == 0) return;
    }
  };
  int due_steps = 0;
  for (int64_t step = 0; step < 1000; ++step) {
    owner_.stop_conditions.clear();
    for (uintptr_t s = 0; s < 4; ++s) {
      if (random() % 3 == 0) continue;
      const auto seed = static_cast<uint32_t>(step * 4 + static_cast<int64_t>(s));
      owner_.stop_conditions[Site(s)] = {true, OptionsOf(seed - seed % 5, random() % 2 == 0)};
    }
    due_steps += owner_.stop_conditions.empty() ? 0 : 1;
    ASSERT_EQ(ring->BeginStep(step, &owner_, &error_), DeviceOutcome::kTaken) << error_.text;
    const uint32_t replays = step == 0 ? 3 : std::array{0u, 1u, 1u, 3u}[random() % 4];
    // By call, then by replay: the order of the items.
    std::vector<std::vector<Expected>> of_calls(5);
    for (uint32_t r = 0; r < replays; ++r) {
      values[random() % values.size()] = static_cast<float>(random() % 100) - 50;
      router.scores()[random() % 320] = static_cast<float>(random() % 1000);
      product.d()[random() % 600] = static_cast<float>(random() % 1000);
      fake_.replay(graph, replays_);
      const auto expect = [&](size_t call, uintptr_t site, uint32_t number, const auto& host) {
        if (!owner_.stop_conditions.contains(Site(site))) return;
        MeasureOptions options = owner_.stop_conditions[Site(site)].options;
        options.sampled = options.sampled && r == 0;
        of_calls[call].push_back(
            {step, Site(site), number, options.sampled, options, HostEvidence(host, options)});
      };
      expect(0, 0, 2 * r, tensor);
      expect(1, 0, 2 * r + 1, tensor);
      expect(2, 1, r, router_host);
      expect(3, 2, r, product.host);
      expect(4, 3, r, update.host());
    }
    ASSERT_EQ(ring->EndStep(&error_), DeviceOutcome::kTaken) << error_.text;
    for (const auto& call : of_calls) expected.insert(expected.end(), call.begin(), call.end());
    if (random() % 4 == 0) fake_.replay(graph, replays_);  // between two steps: not observed
    if (random() % 3 == 0) read(1);
    if (HasFailure()) return;
  }
  read(0);
  EXPECT_TRUE(expected.empty()) << expected.size();
  DeviceItem item;
  EXPECT_FALSE(ring->Front(&item));
  EXPECT_GT(due_steps, 900);
  EXPECT_EQ(owner_.expected, 3u) << "the most replays that a step had";
}

TEST_F(GraphRing, NothingIsMeasuredOutsideOfDueSteps) {
  const auto ring = Open();
  void* graph = Stream(9);
  const TensorCase c(3);
  ASSERT_EQ(Capture(ring.get(), c.device(), graph, Site(0)), DeviceOutcome::kTaken);
  for (int i = 0; i < 5; ++i) fake_.replay(graph, replays_);
  owner_.stop_conditions.clear();
  const uint64_t before = fake_.calls("set_slots");
  for (int64_t step = 0; step < 10; ++step) {
    ASSERT_EQ(ring->BeginStep(step, &owner_, &error_), DeviceOutcome::kTaken);
    fake_.replay(graph, replays_);
    ASSERT_EQ(ring->EndStep(&error_), DeviceOutcome::kTaken);
  }
  EXPECT_EQ(fake_.calls("set_slots"), before) << "a step that is not due costs no launch";
  DeviceItem item;
  EXPECT_FALSE(ring->Front(&item));
  EXPECT_TRUE(ring->empty());
  // The step is due, and the graph is not replayed.
  ASSERT_EQ(Step(ring.get(), 10, graph, Site(0), OptionsOf(1, true), 0), DeviceOutcome::kTaken);
  EXPECT_FALSE(ring->Front(&item));
  EXPECT_TRUE(ring->empty());
  // Earlier steps have no effect on this one.
  ASSERT_EQ(Step(ring.get(), 11, graph, Site(0), OptionsOf(2, true)), DeviceOutcome::kTaken);
  ASSERT_TRUE(ring->Front(&item));
  EXPECT_EQ(EvidenceOf(item, OptionsOf(2, true)), HostEvidence(c.host(), OptionsOf(2, true)));
  ring->Pop();
}

// Replays that exceed the memory are counted. The next steps get more memory.
TEST_F(GraphRing, ManyReplaysAreCountedThenKept) {
  const auto ring = Open();
  void* graph = Stream(9);
  const TensorCase c(3);
  ASSERT_EQ(Capture(ring.get(), c.device(), graph, Site(0)), DeviceOutcome::kTaken);
  ASSERT_EQ(Capture(ring.get(), c.device(), graph, Site(0)), DeviceOutcome::kTaken);
  for (const auto& [replays, kept] : {std::pair{20, 8}, {20, 20}, {65, 64}, {65, 65}, {1, 1}}) {
    SCOPED_TRACE(replays);
    ASSERT_EQ(Step(ring.get(), replays, graph, Site(0), OptionsOf(1, false), replays),
              DeviceOutcome::kTaken);
    DeviceItem item;
    // Both calls are complete: further replays of the first do not use the sections of the second.
    for (int call = 0; call < 2; ++call) {
      for (int r = 0; r < kept; ++r) {
        ASSERT_TRUE(ring->Front(&item));
        ASSERT_TRUE(item.measured) << item.why.text;
        EXPECT_EQ(item.tag.call, static_cast<uint32_t>(2 * r + call));
        EXPECT_EQ(EvidenceOf(item, OptionsOf(1, false)),
                  HostEvidence(c.host(), OptionsOf(1, false)));
        ring->Pop();
      }
      if (replays == kept) continue;
      ASSERT_TRUE(ring->Front(&item));
      EXPECT_FALSE(item.measured);
      EXPECT_EQ(item.unkept, static_cast<uint64_t>(replays - kept));
      ring->Pop();
    }
    EXPECT_FALSE(ring->Front(&item));
  }
}

// A small ring drops elements first, then further replays, then the step.
TEST_F(GraphRing, WhatFindsNoRoomIsStated) {
  DeviceLimits limits;
  limits.ring_bytes = 64 << 10;
  const auto ring = Open(limits);
  void* graph = Stream(9);
  PlainCase router(600, 16);
  ASSERT_EQ(Capture(ring.get(), router.call, graph, Site(0)), DeviceOutcome::kTaken);
  const MeasureOptions options = OptionsOf(1, true);
  EXPECT_EQ(Step(ring.get(), 0, graph, Site(0), options), DeviceOutcome::kTakenWithoutRows);
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  v1::Routing out;
  ASSERT_TRUE(FinishRouting(item.call, *item.plan, *item.raw, true, 8 << 20, &out).ok());
  EXPECT_FALSE(out.has_sample());
  EXPECT_THAT(out.no_sample_reason(), HasSubstr("room"));
  EXPECT_EQ(out.summary().load_size(), 16);
  ring->Pop();
  // No item is read.
  DeviceOutcome last = DeviceOutcome::kTaken;
  int64_t step = 1;
  for (; step < 100 && last != DeviceOutcome::kRingFull; ++step) {
    last = Step(ring.get(), step, graph, Site(0), OptionsOf(1, false));
  }
  ASSERT_EQ(last, DeviceOutcome::kRingFull);
  int64_t seen = 1;
  for (; ring->Front(&item); ++seen, ring->Pop()) EXPECT_EQ(item.tag.step, seen);
  EXPECT_EQ(seen, step - 1) << "all but the one that was refused";
  EXPECT_EQ(Step(ring.get(), step, graph, Site(0), OptionsOf(1, false)), DeviceOutcome::kTaken);
}

// A row is too large for the ring.
TEST_F(GraphRing, ATensorGivesItsElementsUp) {
  DeviceLimits limits;
  limits.ring_bytes = 64 << 10;
  const auto ring = Open(limits);
  std::vector<float> values(20000, 0.5f);
  TensorCall call;
  call.role = "probabilities";
  call.values = TensorView::Dense(values.data(), DType::kF32, 1, 20000);
  call.values.device = 0;
  ASSERT_EQ(Capture(ring.get(), call, Stream(9), Site(0)), DeviceOutcome::kTaken);
  EXPECT_EQ(Step(ring.get(), 1, Stream(9), Site(0), OptionsOf(1, true)),
            DeviceOutcome::kTakenWithoutRows);
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  ASSERT_NE(item.tensor, nullptr);
  v1::Evidence out;
  ASSERT_TRUE(Measure(*item.tensor, &out).ok());
  EXPECT_FALSE(out.tensor().has_sample());
  EXPECT_THAT(out.tensor().no_sample_reason(), HasSubstr("room"));
  EXPECT_EQ(out.sample_size(), 20000u);
  ring->Pop();
}

TEST_F(GraphRing, AProductStatesWhyItHasNoSample) {
  DeviceLimits limits;
  limits.ring_bytes = 64 << 10;
  const auto ring = Open(limits);
  void* graph = Stream(9);
  const ProductCase product(64, 64, 2000);
  ASSERT_EQ(Capture(ring.get(), product.device(), graph, Site(0)), DeviceOutcome::kTaken);
  MeasureOptions options = OptionsOf(1, true);
  EXPECT_EQ(Step(ring.get(), 0, graph, Site(0), options), DeviceOutcome::kTakenWithoutRows);
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  ASSERT_NE(item.product, nullptr);
  EXPECT_THAT(std::string(item.product->no_sample_reason), HasSubstr("no room"));
  ring->Pop();
  options.sample_max_bytes = 1000;
  EXPECT_EQ(Step(ring.get(), 1, graph, Site(0), options), DeviceOutcome::kTaken);
  ASSERT_TRUE(ring->Front(&item));
  EXPECT_THAT(std::string(item.product->no_sample_reason), HasSubstr("exceed the sample"));
  EXPECT_EQ(EvidenceOf(item, options), HostEvidence(product.host, options));
  ring->Pop();
}

TEST_F(GraphRing, RefusesStreamsWithoutCaptureAndMoreThanKMaxCaptured) {
  const auto ring = Open();
  const TensorCase c(3);
  EXPECT_EQ(ring->Capture(c.device(), Stream(9), replays_, Site(0), &error_),
            DeviceOutcome::kRefused);
  EXPECT_THAT(error_.text, HasSubstr("expected a stream that is being captured"));
  EXPECT_FALSE(ring->has_graphs());
  for (uint32_t i = 0; i < kMaxCaptured; ++i) {
    ASSERT_EQ(Capture(ring.get(), c.device(), Stream(9), Site(i)), DeviceOutcome::kTaken);
  }
  EXPECT_EQ(Capture(ring.get(), c.device(), Stream(9), Site(0)), DeviceOutcome::kTooManyCaptured);
}

// Router calls of one stream of a capture share a workspace; those of another stream have a
// separate one.
TEST_F(GraphRing, WorkspacesAreSharedWithinAStreamOfACapture) {
  const auto ring = Open();
  PlainCase small(40, 8), large(40, 64);
  const auto capture = [&](const RoutingCall& call, void* stream, uintptr_t site) {
    ASSERT_EQ(ring->Capture(call, stream, replays_, Site(site), &error_), DeviceOutcome::kTaken);
  };
  fake_.capture(Stream(9), true);
  fake_.capture(Stream(10), true);
  capture(large.call, Stream(9), 0);
  const uint64_t one = fake_.calls("allocate");
  capture(small.call, Stream(9), 1);
  capture(large.call, Stream(9), 2);
  EXPECT_EQ(fake_.calls("allocate"), one);
  capture(small.call, Stream(10), 3);
  EXPECT_EQ(fake_.calls("allocate"), one + 1) << "another stream";
  fake_.capture(Stream(9), false);
  fake_.capture(Stream(9), true);
  capture(small.call, Stream(9), 4);
  EXPECT_EQ(fake_.calls("allocate"), one + 2) << "another graph, which may overlap the first";
  fake_.capture(Stream(9), false);
  fake_.capture(Stream(10), false);
}

// If other calls of a site were made in the step, their numbers do not change.
TEST_F(GraphRing, NumbersBeginWhereTheOwnerStates) {
  const auto ring = Open();
  const TensorCase c(3);
  ASSERT_EQ(Capture(ring.get(), c.device(), Stream(9), Site(0)), DeviceOutcome::kTaken);
  ASSERT_EQ(Capture(ring.get(), c.device(), Stream(9), Site(0)), DeviceOutcome::kTaken);
  owner_.numbers[Site(0)] = 5;
  ASSERT_EQ(Step(ring.get(), 1, Stream(9), Site(0), OptionsOf(1, false), 2), DeviceOutcome::kTaken);
  EXPECT_EQ(owner_.reserved, 16u) << "two calls, eight replays";
  DeviceItem item;
  for (const uint32_t number : {5u, 7u, 6u, 8u}) {  // by call, then by replay
    ASSERT_TRUE(ring->Front(&item));
    EXPECT_EQ(item.tag.call, number);
    ring->Pop();
  }
}

// A wait for a step that has ended does not include the graph of the next step.
TEST_F(GraphRing, AnOpenStepIsNotWaitedFor) {
  const auto ring = Open();
  const TensorCase c(3);
  ASSERT_EQ(Capture(ring.get(), c.device(), Stream(9), Site(0)), DeviceOutcome::kTaken);
  ASSERT_EQ(Step(ring.get(), 1, Stream(9), Site(0), OptionsOf(1, false)), DeviceOutcome::kTaken);
  ASSERT_EQ(ring->BeginStep(2, &owner_, &error_), DeviceOutcome::kTaken);
  const uint64_t mark = ring->position();
  EXPECT_FALSE(ring->passed(mark));
  DeviceItem item;
  ASSERT_TRUE(ring->Front(&item));
  ring->Pop();
  EXPECT_FALSE(ring->Front(&item));
  EXPECT_TRUE(ring->passed(mark));
  EXPECT_FALSE(ring->empty());
  ASSERT_EQ(ring->EndStep(&error_), DeviceOutcome::kTaken);
  EXPECT_FALSE(ring->passed(ring->position()));
  EXPECT_FALSE(ring->Front(&item)) << "it was not replayed";
  EXPECT_TRUE(ring->passed(ring->position()));
}

}  // namespace
}  // namespace plumbline::probes
