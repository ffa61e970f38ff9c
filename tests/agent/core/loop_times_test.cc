// Tests the times of a trainer's loop: blocks of steps, from the spans of the loop's thread.
#include "agent/core/run/loop_times.h"

#include <gtest/gtest.h>

#include <vector>

namespace plumbline::agent {
namespace {

constexpr uint64_t kMs = 1'000'000, kStart = 5'000'000'000;
constexpr uint32_t kLoop = 7, kWorker = 8;

SpanBody Data(uint64_t start, uint64_t ms, uint32_t thread = kLoop) {
  SpanBody span;
  span.kind = v1::Span::KIND_DATA;
  span.thread = thread;
  span.start_monotonic_ns = start;
  span.duration_ns = ms * kMs;
  return span;
}

// A step of 10 ms; its first 2 ms load data. Returns true when a block ended.
bool Step(LoopTimes* times, int64_t step, uint32_t span_thread = kLoop, bool reported = true) {
  const uint64_t begin = kStart + static_cast<uint64_t>(step) * 10 * kMs;
  EXPECT_TRUE(times->Span(Data(begin, 2, span_thread), "data"));
  return times->StepEnded(step, kLoop, reported ? begin + 10 * kMs : 0);
}

TEST(LoopTimes, BlocksEndAtTheSameStepsOnEveryRank) {
  for (const int64_t first : {0, 3, 70}) {
    LoopTimes times;
    std::vector<int64_t> ends;
    for (int64_t step = first; step < 300; ++step) {
      if (!Step(&times, step)) continue;
      ends.push_back(step);
      const v1::Timeline timeline = times.Take();
      ASSERT_GE(timeline.steps_size(), 5);
      EXPECT_EQ(timeline.steps(timeline.steps_size() - 1).number(), step);
      ASSERT_EQ(timeline.waits_size(), 1);
      EXPECT_EQ(timeline.waits(0).cause(), v1::TimelineGap::CAUSE_DATA_LOADING);
      // The first step of a block begins with data, and a window begins with work.
      const auto steps = static_cast<uint64_t>(timeline.steps_size());
      EXPECT_EQ(timeline.waits(0).union_ns(), (steps - 1) * 2 * kMs);
    }
    const std::vector<int64_t> all = {15, 31, 47, 63, 127, 191, 255};
    std::vector<int64_t> expected;
    for (const int64_t end : all) {
      if (end >= first + 5) expected.push_back(end);
    }
    EXPECT_EQ(ends, expected) << first;
    EXPECT_TRUE(times.any());  // the remainder
  }
}

TEST(LoopTimes, OtherThreadsAreNotTheLoop) {
  LoopTimes times;
  for (int64_t step = 0; step < 15; ++step) EXPECT_FALSE(Step(&times, step, kWorker));
  ASSERT_TRUE(Step(&times, 15, kWorker));
  const v1::Timeline timeline = times.Take();
  EXPECT_EQ(timeline.waits_size(), 0);
  EXPECT_EQ(timeline.busy_ns(), timeline.span_ns());
}

TEST(LoopTimes, WithoutSpansThereIsNothing) {
  LoopTimes times;
  SpanBody forward = Data(kStart, 1);
  forward.kind = v1::Span::KIND_FORWARD;
  for (int64_t step = 0; step < 100; ++step) {
    EXPECT_TRUE(times.Span(forward, "forward"));
    EXPECT_FALSE(times.StepEnded(step, kLoop, kStart + static_cast<uint64_t>(step) * kMs));
  }
  EXPECT_FALSE(times.any());
}

// After a missed end, counting starts again; without clock progress there is no step.
TEST(LoopTimes, WhatIsNotKnownIsNoStep) {
  LoopTimes times;
  for (int64_t step = 0; step < 15; ++step) Step(&times, step, kLoop, step != 9);
  ASSERT_TRUE(Step(&times, 15));
  const v1::Timeline timeline = times.Take();
  EXPECT_EQ(timeline.steps_size(), 5);
  EXPECT_EQ(timeline.steps(0).number(), 11);
  for (int64_t step = 16; step < 40; ++step) EXPECT_FALSE(times.StepEnded(step, kLoop, kStart));
  EXPECT_FALSE(times.any());
}

TEST(LoopTimes, TooManySpansLoseTheirBlockAndReportIt) {
  LoopTimes times;
  for (int64_t step = 0; step < 8; ++step) Step(&times, step);
  bool kept = true;
  for (size_t i = 0; i < LoopTimes::kMostSpans; ++i) kept = times.Span(Data(kStart, 1), "data");
  EXPECT_FALSE(kept);
  for (int64_t step = 8; step < 16; ++step)
    EXPECT_FALSE(times.StepEnded(step, kLoop, kStart + static_cast<uint64_t>(step + 1) * 10 * kMs));
  for (int64_t step = 16; step < 31; ++step) EXPECT_FALSE(Step(&times, step));
  EXPECT_TRUE(Step(&times, 31));
}

}  // namespace
}  // namespace plumbline::agent
