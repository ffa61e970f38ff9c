// Tests stages that a loop marks with one word each: how the drain thread reads them, and which are
// lost.
#include "agent/core/run/loop_marks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace plumbline::agent {
namespace {

constexpr uint64_t kEver = ~uint64_t{0};

// Writes a mark as plumbline_mark does, at a given time.
bool Mark(plumbline_marks_t* marks, uint64_t ns, uint64_t stage) {
  if (marks->mark[marks->at] != 0) {
    ++marks->lost;
    marks->gap = PLUMBLINE_MARK_GAP;
    return false;
  }
  marks->mark[marks->at] = ns << 4 | stage | marks->gap;
  marks->gap = 0;
  marks->at = (marks->at + 1) % PLUMBLINE_MARKS;
  return true;
}

struct Reported {
  v1::Span::Kind kind;
  uint64_t start, end;
  bool operator==(const Reported&) const = default;
};

std::vector<Reported> All(LoopMarks* read, uint64_t until) {
  std::vector<Reported> out;
  while (const auto stage = read->Next(until))
    out.push_back({stage->kind, stage->start_ns, stage->end_ns});
  return out;
}

TEST(LoopMarks, AStageEndsWhereTheNextMarkStands) {
  const auto marks = std::make_unique<plumbline_marks_t>();
  LoopMarks read;
  Mark(marks.get(), 10, PLUMBLINE_STAGE_DATA);
  Mark(marks.get(), 12, PLUMBLINE_STAGE_NONE);
  Mark(marks.get(), 20, PLUMBLINE_STAGE_FORWARD);
  Mark(marks.get(), 30, PLUMBLINE_STAGE_BACKWARD);
  read.Read(marks.get());
  // For the step that ends at 29 the forward stage is not included: it belongs to the step in which
  // it ends.
  EXPECT_EQ(All(&read, 29), (std::vector<Reported>{{v1::Span::KIND_DATA, 10, 12}}));
  EXPECT_EQ(All(&read, 30), (std::vector<Reported>{{v1::Span::KIND_FORWARD, 20, 30}}));
  Mark(marks.get(), 45, PLUMBLINE_STAGE_NONE);
  Mark(marks.get(), 50, PLUMBLINE_STAGE_OPTIMIZER);
  Mark(marks.get(), 60, 7);  // from a newer header: an unknown stage
  Mark(marks.get(), 70, PLUMBLINE_STAGE_NONE);
  read.Read(marks.get());
  EXPECT_EQ(All(&read, kEver), (std::vector<Reported>{{v1::Span::KIND_BACKWARD, 30, 45},
                                                      {v1::Span::KIND_OPTIMIZER, 50, 60}}));
  EXPECT_EQ(read.TakeLost(), 0u);
}

TEST(LoopMarks, ATimeThatGoesBackIsNoStage) {
  const auto marks = std::make_unique<plumbline_marks_t>();
  LoopMarks read;
  Mark(marks.get(), 100, PLUMBLINE_STAGE_FORWARD);
  Mark(marks.get(), 50, PLUMBLINE_STAGE_BACKWARD);
  Mark(marks.get(), 60, PLUMBLINE_STAGE_NONE);
  read.Read(marks.get());
  EXPECT_EQ(All(&read, kEver), (std::vector<Reported>{{v1::Span::KIND_BACKWARD, 50, 60}}));
}

// The length of a stage that has lost a mark is unknown.
TEST(LoopMarks, WhatIsLostIsCountedAndStretchesNothing) {
  const auto marks = std::make_unique<plumbline_marks_t>();
  LoopMarks read;
  uint64_t ns = 1, written = 0;
  while (Mark(marks.get(), ns, 1 + ns % 4)) ++ns, ++written;
  EXPECT_EQ(written, uint64_t{PLUMBLINE_MARKS});
  for (int i = 0; i < 9; ++i) Mark(marks.get(), ++ns, PLUMBLINE_STAGE_NONE);
  read.Read(marks.get());
  EXPECT_EQ(read.TakeLost(), 10u);
  EXPECT_EQ(read.TakeLost(), 0u);
  Mark(marks.get(), 1'000'000, PLUMBLINE_STAGE_OPTIMIZER);
  Mark(marks.get(), 1'000'007, PLUMBLINE_STAGE_NONE);
  read.Read(marks.get());
  const std::vector<Reported> all = All(&read, kEver);
  ASSERT_EQ(all.size(), size_t{PLUMBLINE_MARKS});  // all except the open one and the last one
  for (const Reported& one : all) EXPECT_LE(one.end - one.start, 7u);
  EXPECT_EQ(all.back().start, 1'000'000u);
}

TEST(LoopMarks, AStepWithoutAnEndHasABound) {
  const auto marks = std::make_unique<plumbline_marks_t>();
  LoopMarks read;
  const uint64_t more = 100;
  for (uint64_t i = 0; i < LoopMarks::kMostWaiting + more; ++i) {
    ASSERT_TRUE(Mark(marks.get(), i + 1, 1 + i % 2));
    if (i % 1000 == 0) read.Read(marks.get());
  }
  read.Read(marks.get());
  EXPECT_EQ(read.TakeLost(), more);
  EXPECT_EQ(All(&read, kEver).size(), LoopMarks::kMostWaiting - 1);
  Mark(marks.get(), 900'000, PLUMBLINE_STAGE_FORWARD);
  Mark(marks.get(), 900'001, PLUMBLINE_STAGE_NONE);
  read.Read(marks.get());
  EXPECT_EQ(All(&read, kEver), (std::vector<Reported>{{v1::Span::KIND_FORWARD, 900'000, 900'001}}));
}

// While a thread writes as fast as it can: each mark is read once and in order, or counted.
TEST(LoopMarks, OneWritesWhileAnotherReads) {
  constexpr uint64_t kMany = 2'000'000;
  const auto marks = std::make_unique<plumbline_marks_t>();
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (uint64_t i = 0; i < kMany; ++i) plumbline_mark(marks.get(), 1 + i % 4);
    done = true;
  });
  LoopMarks read;
  uint64_t stages = 0, lost = 0, last = 0;
  for (bool whole = false; !whole;) {
    whole = done;
    read.Read(marks.get());
    lost += read.TakeLost();
    while (const auto stage = read.Next(kEver)) {
      EXPECT_LE(last, stage->start_ns);
      EXPECT_LE(stage->start_ns, stage->end_ns);
      last = stage->end_ns;
      ++stages;
    }
  }
  writer.join();
  EXPECT_LE(stages + lost, kMany);
  EXPECT_GE(2 * lost + stages + 1, kMany);  // a gap also loses the adjacent stage
}

}  // namespace
}  // namespace plumbline::agent
