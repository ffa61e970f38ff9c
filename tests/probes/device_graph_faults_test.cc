// Tests faults around calls in CUDA graphs: the trainer continues, no wrong result is returned, and
// memory that a graph may still write to is not reused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "tests/probes/graph_case.h"

namespace plumbline::probes {
namespace {

using ::testing::HasSubstr;

class GraphFaults : public GraphRing {
 protected:
  GraphFaults() {
    ring_ = Open();
    EXPECT_EQ(Capture(ring_.get(), case_.device(), graph_, Site(0)), DeviceOutcome::kTaken);
    owner_.stop_conditions = {{Site(0), {true, OptionsOf(1, true)}}};
  }
  // Expects that the ring refuses calls and that its remaining items are not measured.
  void ExpectBroken(const char* why) {
    DeviceItem item;
    while (ring_->Front(&item)) {
      EXPECT_FALSE(item.measured);
      EXPECT_EQ(item.tag.site, Site(0));
      EXPECT_THAT(item.why.text, HasSubstr(why));
      ring_->Pop();
    }
    EXPECT_TRUE(ring_->failed());
    EXPECT_EQ(ring_->BeginStep(100, &owner_, &error_), DeviceOutcome::kFailed);
    EXPECT_THAT(error_.text, HasSubstr(why));
  }

  void* const graph_ = Stream(9);
  const TensorCase case_{3};
  std::unique_ptr<DeviceRing> ring_;
};

// The graph runs on a stream for which the step's end does not wait. The graph measures in the step
// and writes its results after the step's end, into memory that may belong to another call by then.
TEST_F(GraphFaults, AReplayThatOutlastsItsStepIsFoundOut) {
  ASSERT_EQ(ring_->BeginStep(1, &owner_, &error_), DeviceOutcome::kTaken);
  fake_.hold(true);
  fake_.replay(graph_, Stream(77));
  fake_.advance(2);  // it has measured
  ASSERT_EQ(ring_->EndStep(&error_), DeviceOutcome::kTaken);
  fake_.advance(1);  // the slots are closed before the graph writes its results
  fake_.hold(false);
  DeviceItem item;
  ASSERT_TRUE(ring_->Front(&item));
  EXPECT_FALSE(item.measured);
  EXPECT_FALSE(item.abandoned);
  EXPECT_THAT(item.why.text, HasSubstr("a graph was replayed"));
  ring_->Pop();
  ExpectBroken("a graph was replayed");
}

// One graph runs on two streams at once. The results are mixed.
TEST_F(GraphFaults, TwoReplaysAtOnceAreDetected) {
  owner_.stop_conditions = {{Site(0), {true, OptionsOf(1, false)}}};
  for (const uint64_t ring_bytes : {32 << 20, 64 << 10}) {  // with more sections, and with fewer
    SCOPED_TRACE(ring_bytes);
    DeviceLimits limits;
    limits.ring_bytes = ring_bytes;
    const auto ring = Open(limits);
    ASSERT_EQ(Capture(ring.get(), case_.device(), Stream(10), Site(0)), DeviceOutcome::kTaken);
    ASSERT_EQ(ring->BeginStep(1, &owner_, &error_), DeviceOutcome::kTaken);
    fake_.hold(true);
    fake_.replay(Stream(10), Stream(70));
    fake_.replay(Stream(10), Stream(71));
    fake_.advance(100);
    ASSERT_EQ(ring->EndStep(&error_), DeviceOutcome::kTaken);
    fake_.hold(false);
    DeviceItem item;
    ASSERT_TRUE(ring->Front(&item));
    EXPECT_TRUE(item.measured) << "one after the other";
    while (ring->Front(&item)) ring->Pop();
    ASSERT_EQ(ring->BeginStep(2, &owner_, &error_), DeviceOutcome::kTaken);
    fake_.hold(true);
    fake_.replay(Stream(10), Stream(70));
    fake_.replay(Stream(10), Stream(71));
    for (int i = 0; i < 10; ++i) fake_.advance(1);  // in turns
    ASSERT_EQ(ring->EndStep(&error_), DeviceOutcome::kTaken);
    fake_.hold(false);
    ASSERT_TRUE(ring->Front(&item));
    EXPECT_FALSE(item.measured);
    EXPECT_THAT(item.why.text, HasSubstr("a graph was replayed"));
    ring->Pop();
  }
}

// The replay measured before the step and writes in the step, so the results belong to another
// replay.
TEST_F(GraphFaults, AReplayThatBeginsBeforeItsStepIsFoundOut) {
  fake_.hold(true);
  fake_.replay(graph_, Stream(77));
  fake_.advance(2);
  ASSERT_EQ(ring_->BeginStep(1, &owner_, &error_), DeviceOutcome::kTaken);
  ASSERT_EQ(ring_->EndStep(&error_), DeviceOutcome::kTaken);
  fake_.advance(1);  // the slots are open (the lower stream runs first), and the replay writes
  fake_.hold(false);
  DeviceItem item;
  ASSERT_TRUE(ring_->Front(&item));
  EXPECT_FALSE(item.measured);
  ring_->Pop();
  ExpectBroken("a graph was replayed");
}

TEST_F(GraphFaults, SlotsThatDoNotOpenEndIt) {
  fake_.fail("set_slots", 0, kDeviceFailed, false);
  EXPECT_EQ(ring_->BeginStep(1, &owner_, &error_), DeviceOutcome::kFailed);
  EXPECT_THAT(error_.text, HasSubstr("set_slots: made to fail"));
  EXPECT_EQ(ring_->EndStep(&error_), DeviceOutcome::kTaken);
  ExpectBroken("set_slots: made to fail");
}

TEST_F(GraphFaults, SlotsThatDoNotCloseEndIt) {
  ASSERT_EQ(ring_->BeginStep(1, &owner_, &error_), DeviceOutcome::kTaken);
  fake_.fail("set_slots", 0, kDeviceFailed, false);
  EXPECT_EQ(ring_->EndStep(&error_), DeviceOutcome::kFailed);
  EXPECT_THAT(error_.text, HasSubstr("set_slots: made to fail"));
  ExpectBroken("set_slots: made to fail");
  const uint64_t held = Held();
  ring_.reset();
  EXPECT_EQ(Held(), held) << "the slots are open: replays still write there";
  fake_.replay(graph_, replays_);
}

// If a replay has read a section, it does not write to it after the slot was closed or has moved to
// the next section.
TEST_F(GraphFaults, AClosedSectionIsNotWritten) {
  GraphWork work[2];
  GraphCounts tally;
  const auto at = [&](int i) { return reinterpret_cast<uint64_t>(&work[i]); };
  GraphSlot slot{at(0), reinterpret_cast<uint64_t>(&tally), 2, 0, sizeof(GraphWork), 0};
  uint64_t section = 0;
  const GraphCall call{&slot, &section};
  BeginReplay(call);
  EXPECT_TRUE(MayWrite(call));
  const GraphSlot open = slot;
  slot = GraphSlot{};
  EXPECT_FALSE(MayWrite(call));
  EndReplay(call);
  EXPECT_EQ(tally.replays + work[0].done, 0u);
  slot = open;
  slot.section = at(1);
  EXPECT_FALSE(MayWrite(call));
  slot = open;
  EndReplay(call);
  EXPECT_EQ(tally.replays, 1u);
  EXPECT_EQ(work[0].begun, 1u);
  EXPECT_EQ(work[0].done, 1u);
  EXPECT_EQ(slot.section, at(1));
}

TEST_F(GraphFaults, AnEventThatIsNotRecordedEndsIt) {
  ASSERT_EQ(ring_->BeginStep(1, &owner_, &error_), DeviceOutcome::kTaken);
  fake_.fail("record_event", 0, kDeviceFailed, false);
  EXPECT_EQ(ring_->EndStep(&error_), DeviceOutcome::kFailed);
  ExpectBroken("record_event: made to fail");
}

// If the stream of the replays is being captured, a step is not opened, and an open step cannot be
// closed.
TEST_F(GraphFaults, ACapturedReplayStream) {
  fake_.capture(replays_, true);
  EXPECT_EQ(ring_->BeginStep(1, &owner_, &error_), DeviceOutcome::kCapturing);
  EXPECT_EQ(ring_->EndStep(&error_), DeviceOutcome::kTaken);
  fake_.capture(replays_, false);
  ASSERT_EQ(ring_->BeginStep(2, &owner_, &error_), DeviceOutcome::kTaken);
  fake_.capture(replays_, true);
  EXPECT_EQ(ring_->EndStep(&error_), DeviceOutcome::kFailed);
  EXPECT_THAT(error_.text, HasSubstr("was being captured at the step's end"));
  fake_.capture(replays_, false);
  ExpectBroken("was being captured at the step's end");
}

TEST_F(GraphFaults, AStreamOfAnotherDeviceIsRefusedWhenItIsNamed) {
  const auto ring = Open();
  fake_.fail("stream_id", 0, kDeviceRefused, false);
  EXPECT_EQ(Capture(ring.get(), case_.device(), graph_, Site(0)), DeviceOutcome::kRefused);
  EXPECT_FALSE(ring->has_graphs());
}

TEST_F(GraphFaults, ReplaysHaveOneStream) {
  fake_.capture(graph_, true);
  EXPECT_EQ(ring_->Capture(case_.device(), graph_, Stream(4), Site(1), &error_),
            DeviceOutcome::kRefused);
  EXPECT_THAT(error_.text, HasSubstr("replay_stream: expected the one"));
  const auto ring = Open();
  EXPECT_EQ(ring->Capture(case_.device(), graph_, kPerThreadStream, Site(1), &error_),
            DeviceOutcome::kRefused);
  EXPECT_THAT(error_.text, HasSubstr("every thread's"));
  EXPECT_FALSE(ring->has_graphs());
  fake_.capture(graph_, false);
}

TEST_F(GraphFaults, CapturesThatFail) {
  for (const char* call : {"capture_id", "allocate", "write_memory", "capture_tensor"}) {
    SCOPED_TRACE(call);
    const auto ring = Open();
    fake_.fail(call, 0, kDeviceFailed, false);
    EXPECT_EQ(Capture(ring.get(), case_.device(), graph_, Site(0)), DeviceOutcome::kFailed);
    EXPECT_THAT(error_.text, HasSubstr("made to fail"));
    EXPECT_FALSE(ring->has_graphs());
    // If memory is short while the trainer captures, the ring does not fail.
    EXPECT_EQ(ring->failed(), std::string_view(call) == "capture_tensor");
  }
}

TEST_F(GraphFaults, WhatIsRefusedTakesNoMemory) {
  const auto ring = Open();
  const uint64_t before = fake_.calls("allocate");
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(ring->Capture(case_.device(), Stream(50), replays_, Site(0), &error_),
              DeviceOutcome::kRefused);
  }
  EXPECT_EQ(fake_.calls("allocate"), before);
}

// The device fails while a record is half read. The remaining calls are returned as one item per
// call.
TEST_F(GraphFaults, FailingWithinARecord) {
  ASSERT_EQ(Capture(ring_.get(), case_.device(), graph_, Site(1)), DeviceOutcome::kTaken);
  owner_.stop_conditions[Site(1)] = {true, OptionsOf(1, true)};
  ASSERT_EQ(ring_->BeginStep(1, &owner_, &error_), DeviceOutcome::kTaken);
  for (int r = 0; r < 3; ++r) fake_.replay(graph_, replays_);
  ASSERT_EQ(ring_->EndStep(&error_), DeviceOutcome::kTaken);
  DeviceItem item;
  ASSERT_TRUE(ring_->Front(&item));
  EXPECT_TRUE(item.measured);
  ring_->Pop();
  ring_->Abandon("closed");
  for (const uintptr_t site : {0, 1}) {
    ASSERT_TRUE(ring_->Front(&item));
    EXPECT_FALSE(item.measured);
    EXPECT_TRUE(item.abandoned);
    EXPECT_EQ(item.tag.site, Site(site));
    ring_->Pop();
  }
  EXPECT_FALSE(ring_->Front(&item));
  EXPECT_TRUE(ring_->empty());
}

// Events and records are returned. A step that was not ended is ended by the next step.
TEST_F(GraphFaults, NothingIsHeldBackFromStepToStep) {
  DeviceLimits limits;
  limits.events = 2;
  const auto ring = Open(limits);
  ASSERT_EQ(Capture(ring.get(), case_.device(), Stream(10), Site(0)), DeviceOutcome::kTaken);
  DeviceItem item;
  for (int64_t step = 0; step < 300; ++step) {
    ASSERT_EQ(ring->BeginStep(step, &owner_, &error_), DeviceOutcome::kTaken) << error_.text;
    fake_.replay(Stream(10), replays_);
    if (step % 5 == 4) continue;
    ASSERT_EQ(ring->EndStep(&error_), DeviceOutcome::kTaken);
    for (; ring->Front(&item); ring->Pop()) EXPECT_TRUE(item.measured);
  }
  EXPECT_EQ(ring->EndStep(&error_), DeviceOutcome::kTaken);
  while (ring->Front(&item)) ring->Pop();
  EXPECT_TRUE(ring->empty());
}

TEST_F(GraphFaults, GivenUpWithAStepOpen) {
  const uint64_t held = Held();
  ASSERT_EQ(ring_->BeginStep(1, &owner_, &error_), DeviceOutcome::kTaken);
  fake_.hold(true);
  fake_.replay(graph_, replays_);
  EXPECT_EQ(ring_->EndStep(&error_), DeviceOutcome::kTaken);
  ring_->Abandon("the run was closed");
  DeviceItem item;
  ASSERT_TRUE(ring_->Front(&item));
  EXPECT_TRUE(item.abandoned);
  ring_->Pop();
  ring_.reset();
  fake_.hold(false);  // the graph writes: its memory and the pages are still there
  EXPECT_EQ(Held(), held);
}

}  // namespace
}  // namespace plumbline::probes
