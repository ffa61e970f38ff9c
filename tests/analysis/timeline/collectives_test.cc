// Tests the data volume and time of collectives: against the examples of the formulas, and for
// kernels whose time is not link time.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/timeline/timeline.h"

namespace plumbline::timeline {
namespace {

constexpr uint64_t kMiB = 1u << 20;

CollectiveTimes Times(const std::string& op, uint32_t ranks, uint64_t bytes, uint64_t ns) {
  return {
      .op = op, .ranks = ranks, .first = 0, .stride = 1, .bytes = bytes, .calls = 1, .time_ns = ns};
}

TEST(Collectives, Names) {
  EXPECT_EQ(CollectiveOf("allreduce"), "all_reduce");
  EXPECT_EQ(CollectiveOf("_allgather_base"), "all_gather");
  EXPECT_EQ(CollectiveOf("_reduce_scatter_base"), "reduce_scatter");
  EXPECT_EQ(CollectiveOf("all_to_allv"), "all_to_all");
  EXPECT_EQ(CollectiveOf("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"), "reduce_scatter");
  for (const char* name : {"broadcast", "send", "barrier", "", "ncclDevKernel_SendRecv"})
    EXPECT_EQ(CollectiveOf(name), "") << name;
  EXPECT_EQ(BytesOfType("BFloat16"), 2u);
  EXPECT_EQ(BytesOfType("Float"), 4u);
  EXPECT_EQ(BytesOfType("Float8_e4m3fn"), 1u);
  EXPECT_EQ(BytesOfType("QInt32"), 0u);
}

// Tests B: the whole tensor, for either side on a rank; in an all-to-all, the sum over all ranks.
TEST(Collectives, WholeBytes) {
  EXPECT_EQ(WholeBytes("all_reduce", 1000, 1000, 8, 2), 2000u);
  EXPECT_EQ(WholeBytes("all_gather", 125, 1000, 8, 2), 2000u);
  EXPECT_EQ(WholeBytes("reduce_scatter", 1000, 125, 8, 2), 2000u);
  EXPECT_EQ(WholeBytes("all_to_all", 1000, 1000, 8, 2), 16000u);
  EXPECT_EQ(WholeBytes("all_reduce", 1000, 1000, 1, 2), 0u);
  EXPECT_EQ(WholeBytes("all_reduce", UINT64_MAX, 1, 8, 2), 0u);
  EXPECT_EQ(WholeBytes("broadcast", 10, 10, 8, 2), 0u);
}

// Tests T = B(N-1)/(W N) of an all-gather with W = 50 GB/s: the measurement returns W.
TEST(Collectives, TheBandwidthOfTheFormulasIsFoundAgain) {
  constexpr double kLink = 50e9;
  for (const uint32_t n : {2u, 8u, 64u}) {
    const double bytes = 1e9, gather = bytes * (n - 1) / (kLink * n);
    const auto ns = [](double seconds) { return static_cast<uint64_t>(1e9 * seconds + 0.5); };
    const auto b = static_cast<uint64_t>(bytes);
    EXPECT_NEAR(BusBandwidth(Times("all_gather", n, b, ns(gather))) / kLink, 1, 1e-6);
    EXPECT_NEAR(BusBandwidth(Times("reduce_scatter", n, b, ns(gather))) / kLink, 1, 1e-6);
    EXPECT_NEAR(BusBandwidth(Times("all_reduce", n, b, ns(2 * gather))) / kLink, 1, 1e-6);
    EXPECT_NEAR(BusBandwidth(Times("all_to_all", n, b, ns(gather / n))) / kLink, 1, 1e-5);
  }
  EXPECT_EQ(BusBandwidth(Times("all_gather", 8, 1000, 0)), 0);
  EXPECT_EQ(BusBandwidth(Times("all_gather", 1, 1000, 9)), 0);
}

// Tests a hundred calls of 10 ms, most of which wait longer. Calls that share the link are omitted.
TEST(Collectives, WaitingAndSharingAreNotTheLink) {
  constexpr int64_t kMs = 1'000'000;
  Columns columns;
  columns.names = {"nccl"};
  columns.collectives = {Times("all_reduce", 8, 64 * kMiB, 0), Times("all_gather", 8, kMiB, 0)};
  const auto add = [&](int64_t start, int64_t end, uint16_t collective) {
    GpuWork work;
    work.start = start;
    work.end = end;
    work.communicates = true;
    work.collective = collective;
    columns.gpu.push_back(work);
  };
  for (int64_t i = 0; i < 100; ++i) {
    const int64_t at = 100 * i * kMs;
    add(at, at + (i % 5 == 0 ? 10 : 40) * kMs, 0);  // one in five is last
    add(at + 50 * kMs, at + 55 * kMs, 0);           // half as long, with another at the same time
    add(at + 54 * kMs, at + 70 * kMs, kNoCollective);
    add(at + 80 * kMs, at + 81 * kMs, 1);  // small
  }
  Reduce(&columns);
  const std::vector<CollectiveTimes> found = CollectivesIn(columns);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].op, "all_reduce");
  EXPECT_EQ(found[0].calls, 100u);
  EXPECT_EQ(found[0].time_ns, 10u * kMs);
}

TEST(Collectives, AsASpanAndBack) {
  CollectiveTimes times = Times("all_gather", 16, 128 * kMiB, 5'000'000);
  times.first = 3;
  times.stride = 8;
  times.calls = 240;
  v1::Evidence evidence;
  PutCollective(times, &evidence);
  EXPECT_EQ(evidence.site().layer(), "collectives of 16 ranks");
  EXPECT_EQ(evidence.span().name(), "134217728 bytes among 3+8*16");
  CollectiveTimes back;
  ASSERT_TRUE(ReadCollective(evidence, &back));
  EXPECT_EQ(back.op, times.op);
  EXPECT_EQ(back.ranks, 16u);
  EXPECT_EQ(back.first, 3);
  EXPECT_EQ(back.stride, 8);
  EXPECT_EQ(back.bytes, times.bytes);
  EXPECT_EQ(back.calls, 240u);
  EXPECT_EQ(back.time_ns, times.time_ns);
  for (const char* name :
       {"", "gradients", "12 bytes among ", "12 bytes among 0+1*1", "0 bytes among 0+1*8",
        "12 bytes among 0+1*8x", "12 bytes among -5+1*8", "-1 bytes among 0+1*8",
        "12 bytes among 0+1*99999999", "99999999999999999999 bytes among 0+1*8"}) {
    evidence.mutable_span()->set_name(name);
    EXPECT_FALSE(ReadCollective(evidence, &back)) << name;
  }
}

}  // namespace
}  // namespace plumbline::timeline
