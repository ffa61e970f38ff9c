// Tests unions of random intervals against a bitmap, and the reduction of a trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "analysis/timeline/timeline.h"

namespace plumbline::timeline {
namespace {

constexpr int kLine = 600;

using Bits = std::vector<bool>;

Bits BitsOf(const std::vector<Interval>& intervals) {
  Bits bits(kLine, false);
  for (const Interval& part : intervals) {
    for (int64_t at = part.start; at < part.end; ++at) bits[static_cast<size_t>(at)] = true;
  }
  return bits;
}

template <typename Of>
int64_t Count(const Of& of) {
  int64_t count = 0;
  for (size_t i = 0; i < kLine; ++i) count += of(i) ? 1 : 0;
  return count;
}

// Returns clustered or sparse intervals, some empty, some adjacent.
std::vector<Interval> Random(std::mt19937_64* rng) {
  std::vector<Interval> out;
  const int n = static_cast<int>((*rng)() % 40);
  const int longest = 1 + static_cast<int>((*rng)() % 60);
  for (int i = 0; i < n; ++i) {
    const int64_t start = static_cast<int64_t>((*rng)() % kLine);
    const int64_t length = static_cast<int64_t>((*rng)() % static_cast<uint64_t>(longest));
    out.push_back({start, std::min<int64_t>(kLine, start + length)});
  }
  return out;
}

TEST(Intervals, LengthsAreThoseOfABitmap) {
  std::mt19937_64 rng(1);
  for (int round = 0; round < 3000; ++round) {
    const std::vector<Interval> a = Random(&rng), b = Random(&rng);
    const Bits in_a = BitsOf(a), in_b = BitsOf(b);
    Intervals ua(a), ub(b);
    EXPECT_EQ(ua.length(), Count([&](size_t i) { return in_a[i]; }));
    EXPECT_EQ(CommonLength(ua, ub), Count([&](size_t i) { return in_a[i] && in_b[i]; }));
    EXPECT_EQ(Union(ua, ub).length(), Count([&](size_t i) { return in_a[i] || in_b[i]; }));
    const int64_t from = static_cast<int64_t>(rng() % kLine),
                  to = static_cast<int64_t>(rng() % kLine);
    const auto within = [&](size_t i) {
      return static_cast<int64_t>(i) >= from && static_cast<int64_t>(i) < to;
    };
    const int64_t expected = Count([&](size_t i) { return in_a[i] && within(i); });
    EXPECT_EQ(ua.LengthWithin(from, to), expected);
    EXPECT_EQ(ua.GapsWithin(from, to).length(),
              Count([&](size_t i) { return !in_a[i] && within(i); }));
    ua.Index();
    EXPECT_EQ(ua.LengthWithin(from, to), expected);
  }
}

// Returns a random trace of GPU events on streams, some of which communicate.
Columns RandomTrace(std::mt19937_64* rng, std::vector<Interval>* comm,
                    std::vector<Interval>* comp) {
  Columns columns;
  columns.names = {"a", "b", "nccl"};
  for (const bool communicates : {false, true}) {
    for (const Interval& part : Random(rng)) {
      if (part.end <= part.start) continue;
      GpuWork work;
      work.start = part.start;
      work.end = part.end;
      work.name = communicates ? 2 : static_cast<uint32_t>((*rng)() % 2);
      work.kind = communicates ? GpuKind::kKernel : static_cast<GpuKind>((*rng)() % 3);
      work.communicates = communicates;
      columns.gpu.push_back(work);
      (communicates ? comm : comp)->push_back(part);
    }
  }
  std::shuffle(columns.gpu.begin(), columns.gpu.end(), *rng);
  return columns;
}

TEST(Reduce, IdleAndOverlapAreThoseOfABitmap) {
  std::mt19937_64 rng(2);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Interval> comm, comp;
    Columns columns = RandomTrace(&rng, &comm, &comp);
    const int64_t from = static_cast<int64_t>(rng() % kLine);
    columns.steps.push_back({7, from, std::min<int64_t>(kLine, from + 100)});
    const StepMarked step = columns.steps[0];
    const v1::Timeline t = Reduce(&columns);
    const Bits in_comm = BitsOf(comm), in_comp = BitsOf(comp);
    const auto busy = [&](size_t i) { return in_comm[i] || in_comp[i]; };
    const auto exposed = [&](size_t i) { return in_comm[i] && !in_comp[i]; };
    const auto in_step = [&](size_t i) {
      return static_cast<int64_t>(i) >= step.start && static_cast<int64_t>(i) < step.end;
    };
    EXPECT_EQ(static_cast<int64_t>(t.busy_ns()), Count(busy));
    EXPECT_EQ(static_cast<int64_t>(t.communication_ns()),
              Count([&](size_t i) { return in_comm[i]; }));
    EXPECT_EQ(static_cast<int64_t>(t.exposed_ns()), Count(exposed));
    ASSERT_EQ(t.steps_size(), 1);
    EXPECT_EQ(static_cast<int64_t>(t.steps(0).busy_ns()),
              Count([&](size_t i) { return busy(i) && in_step(i); }));
    EXPECT_EQ(static_cast<int64_t>(t.steps(0).exposed_ns()),
              Count([&](size_t i) { return exposed(i) && in_step(i); }));
    if (columns.gpu.empty()) continue;
    size_t first = 0, last = kLine;
    while (!busy(first)) ++first;
    while (!busy(last - 1)) --last;
    EXPECT_EQ(t.span_ns(), last - first);
  }
}

TEST(Reduce, KernelsWithoutLaunchesCountAndOverlapIsNotCountedTwice) {
  Columns columns;
  columns.names = {"k"};
  constexpr int64_t kMs = 1'000'000;
  for (const Interval part : {Interval{0, 10}, Interval{5, 15}, Interval{20, 30}}) {
    GpuWork work;
    work.start = part.start * kMs;
    work.end = part.end * kMs;
    columns.gpu.push_back(work);
  }
  const v1::Timeline t = Reduce(&columns);
  EXPECT_EQ(t.span_ns(), 30u * kMs);
  EXPECT_EQ(t.busy_ns(), 25u * kMs);
  EXPECT_EQ(t.launched_kernels(), 0u);
  ASSERT_EQ(t.gaps_size(), 1);
  EXPECT_EQ(t.gaps(0).start_ns(), 15u * kMs);
  EXPECT_EQ(t.gaps(0).duration_ns(), 5u * kMs);
  EXPECT_EQ(t.gaps(0).occurrence(), 3u);
}

// Tests that a function around the loop is not the cause of gaps within it, whatever its name.
TEST(Reduce, FramesAroundStepsAreNoCause) {
  constexpr int64_t kMs = 1'000'000;
  for (const bool marked : {true, false}) {
    Columns columns;
    columns.names = {"k", "run_with_checkpoints"};
    for (int64_t i = 0; i < 4; ++i) {
      GpuWork work;
      work.start = 20 * i * kMs;
      work.end = work.start + 15 * kMs;
      work.correlation = static_cast<uint32_t>(i) + 1;
      columns.gpu.push_back(work);
      columns.launches.push_back({work.start - 10, 5, work.correlation, 3, true});
      if (marked) columns.steps.push_back({i, work.start, work.start + 20 * kMs});
    }
    columns.spans.push_back({-kMs, 90 * kMs, 3, 1, kCheckpoint});
    columns.spans.push_back({36 * kMs, 39 * kMs, 3, 1, kDataLoading});
    const v1::Timeline t = Reduce(&columns);
    ASSERT_EQ(t.gaps_size(), 3);
    EXPECT_EQ(t.gaps(0).cause(), v1::TimelineGap::CAUSE_UNKNOWN);
    EXPECT_EQ(t.gaps(1).cause(), v1::TimelineGap::CAUSE_DATA_LOADING);
  }
}

TEST(Reduce, NothingGivesNothing) {
  Columns columns;
  EXPECT_EQ(Reduce(&columns).span_ns(), 0u);
}

}  // namespace
}  // namespace plumbline::timeline
