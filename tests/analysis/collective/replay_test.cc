// Tests simulated collectives with listed arithmetic: the replay identifies the arithmetic and its
// parameters.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/collective/replay/replayed.h"
#include "tests/rules/support/replay_words.h"
#include "tests/rules/support/simulated_reduction.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::analysis {
namespace {

using rules::testing::Claim;
using rules::testing::Draw;
using rules::testing::Pick;
using rules::testing::ReductionSpec;
using rules::testing::SimulateReduction;
using rules::testing::States;
using rules::testing::Words;

// Returns a random collective of a listed kind.
ReductionSpec RandomSpec(Draw& draw, int seed) {
  static const char* const kModels[] = {"ring",        "ring",    "tree", "halving",
                                        "double-tree", "grouped", "fp32", "exact"};
  static constexpr int kRanks[] = {4, 5, 6, 7, 9, 12, 16, 24, 33, 64};
  static constexpr DType kDTypes[] = {DType::kBF16, DType::kF16, DType::kF32};
  static const char* const kSegments[] = {"count/N", "gloo", "constant"};
  ReductionSpec s;
  s.seed = seed;
  s.model = kModels[Pick(draw, 8)];
  s.ranks = kRanks[Pick(draw, 10)];
  s.dtype = kDTypes[Pick(draw, 3)];
  s.samples = 400;
  s.count = 100000 + Pick(draw, 4000000);
  s.segments = kSegments[Pick(draw, 3)];
  s.start = Pick(draw, s.ranks);
  s.direction = draw.Uniform() < .5 ? 1 : -1;
  s.segment_step = draw.Uniform() < .5 ? 1 : -1;
  s.mean = draw.Uniform() < .6 ? 1 : 0;
  s.spread = s.mean == 0 ? 1 : draw.Uniform();
  if (draw.Uniform() < .3) s.rounding = "toward-zero";
  if (s.model == "grouped") {
    s.ranks = 12 + 12 * Pick(draw, 3);
    s.group = draw.Uniform() < .5 ? 2 : 3;
    s.start = Pick(draw, s.ranks / s.group);
    s.rounding = "nearest";
  }
  if (s.model == "double-tree") s.rounding = "nearest";
  if (s.model == "fp32" && s.dtype == DType::kF32) s.dtype = DType::kBF16;
  return s;
}

// Parameters are claimed correctly or, rarely, not claimed.
struct Claims {
  int absent = 0;
  void Take(const ReductionReplay& r, const std::string& key, const std::string& expected) {
    const std::string claim = Claim(r, key);
    if (claim == "-") {
      ++absent;
    } else {
      EXPECT_EQ(claim, expected) << key;
    }
  }
};

TEST(Recovery, NamesEveryListedArithmetic) {
  Draw draw(7);
  const int cases = std::getenv("PLUMB_LONG") != nullptr ? 3000 : 240;
  std::map<std::string, int> seen;
  int wide_seen = 0, wide_proved = 0, unproved = 0;
  Claims claims;
  for (int i = 0; i < cases; ++i) {
    const ReductionSpec s = RandomSpec(draw, i + 1);
    const ReductionReplay r = ReplayReduction(SimulateReduction(s));
    SCOPED_TRACE(Words(s) + "\n  states " + States(r));
    ++seen[s.model];
    ASSERT_TRUE(r.explained);
    const bool wide = s.model == "fp32" || s.model == "exact";
    unproved += !r.class_proved || (!wide && !r.proved);
    wide_proved += wide && r.proved;
    wide_seen += wide;
    const std::string expected = s.model == "double-tree"                       ? "tree"
                                 : s.model == "exact" && s.dtype != DType::kF32 ? "fp32"
                                                                                : s.model;
    EXPECT_EQ(r.name, expected);
    claims.Take(r, "rounding", s.rounding);
    EXPECT_EQ(r.narrow_partials, !wide && s.dtype != DType::kF32);
    if (s.model != "ring") continue;
    claims.Take(r, "start", absl::StrCat(s.start));
    claims.Take(r, "direction", s.direction > 0 ? "ascending" : "descending");
  }
  EXPECT_EQ(seen.size(), 7u);
  // 400 samples identify nearly everything; the remainder is not claimed.
  EXPECT_LE(unproved, cases / 100);
  EXPECT_LE(claims.absent, cases / 100);
  RecordProperty("unproved", unproved);
  RecordProperty("unclaimed", claims.absent);
  RecordProperty("wide",
                 absl::StrCat(wide_proved, " distinguished from compensated sums, of ", wide_seen));
}

TEST(Recovery, AveragesAndWhereTheyDivide) {
  for (const char* average : {"pre-divided", "pre-multiplied", "post-divided", "post-multiplied"}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const int ranks : {3, 6, 12, 24}) {
        ReductionSpec s;
        s.average = average;
        s.dtype = dtype;
        s.ranks = ranks;
        s.samples = 1024;
        const ReductionReplay r = ReplayReduction(SimulateReduction(s));
        SCOPED_TRACE(Words(s) + "\n  states " + States(r));
        EXPECT_EQ(r.name, "ring");
        EXPECT_TRUE(r.proved);
        EXPECT_EQ(Claim(r, "averaging"), average);
      }
    }
  }
  // If the number of ranks is a power of two, the place of the division has no effect and is not
  // claimed.
  ReductionSpec s;
  s.average = "pre-multiplied";
  s.ranks = 16;
  const ReductionReplay r = ReplayReduction(SimulateReduction(s));
  EXPECT_EQ(r.name, "ring");
  EXPECT_EQ(Claim(r, "averaging"), "-");
}

TEST(Recovery, RingOrders) {
  ReductionSpec s;
  s.ranks = 8;
  s.order = "0,5,2,7,1,3,6,4";
  s.segments = "count/N";
  s.start = 3;  // position 3: rank 7
  for (const bool declared : {true, false}) {
    s.declare_order = declared;
    const ReductionReplay r = ReplayReduction(SimulateReduction(s));
    SCOPED_TRACE(States(r));
    EXPECT_TRUE(r.proved);
    EXPECT_EQ(r.name, "ring");
    EXPECT_EQ(Claim(r, "start"), "7");
    EXPECT_EQ(Claim(r, "ring_order"), s.order);
  }
  // More ranks than the search over orders supports.
  s.ranks = 12;
  s.order = "0,5,2,7,1,3,6,4,11,8,10,9";
  s.declare_order = true;
  EXPECT_EQ(ReplayReduction(SimulateReduction(s)).name, "ring");
  s.declare_order = false;
  EXPECT_EQ(ReplayReduction(SimulateReduction(s)).name, "unexplained");
}

TEST(Recovery, ChannelsWithRingsOfTheirOwn) {
  ReductionSpec s;
  s.ranks = 16;
  s.channels = 4;
  s.chunk = 4096;
  s.segments = "chunks";
  s.count = 3000001;
  s.samples = 1024;
  s.start = 1;
  const ReductionReplay one = ReplayReduction(SimulateReduction(s));
  EXPECT_TRUE(one.proved) << States(one);
  EXPECT_EQ(Claim(one, "start"), "1");
  EXPECT_EQ(Claim(one, "segments"), "channels");
  std::vector<int> orders;
  for (int channel = 0; channel < 4; ++channel) {
    for (int i = 0; i < 16; ++i) orders.push_back(i * (2 * channel + 3) % 16);
  }
  s.order = absl::StrJoin(orders, ",");
  const ReductionReplay each = ReplayReduction(SimulateReduction(s));
  EXPECT_TRUE(each.proved) << States(each);
  EXPECT_EQ(each.name, "ring");
  EXPECT_EQ(Claim(each, "ring_order"), "by channel");
}

TEST(Recovery, ManyRanks) {
  for (const int ranks : {256, 1024}) {
    for (const char* model : {"ring", "tree", "halving", "fp32"}) {
      ReductionSpec s;
      s.model = model;
      s.ranks = ranks;
      s.samples = 512;
      s.count = 1 << 26;
      s.start = 200;
      s.direction = -1;
      s.mean =
          0;  // a bf16 sum of 1,024 similar values loses its last addends, hence also the start
      s.spread = 1;
      const ReductionReplay r = ReplayReduction(SimulateReduction(s));
      SCOPED_TRACE(Words(s) + "\n  states " + States(r));
      EXPECT_TRUE(r.class_proved);
      EXPECT_EQ(r.name, model);
      if (r.name == "ring") {
        EXPECT_EQ(Claim(r, "start"), "200");
      }
    }
  }
}

TEST(Recovery, SubnormalsFlushedOrNot) {
  for (const bool flush : {false, true}) {
    ReductionSpec s;
    s.dtype = DType::kF16;
    s.ranks = 8;
    s.scale = 0x1p-16;
    s.mean = 0;
    s.spread = 1;
    s.flush = flush;
    const ReductionReplay r = ReplayReduction(SimulateReduction(s));
    SCOPED_TRACE(States(r));
    EXPECT_EQ(r.matches, static_cast<int>(r.columns.size()));
    if (flush) {
      EXPECT_EQ(Claim(r, "flush"), "inputs and results");
    }
  }
}

TEST(Poison, NonFiniteInputsAreSetAside) {
  ReductionSpec s;
  s.ranks = 16;
  s.samples = 400;
  s.non_finite = .3;
  s.start = 5;
  const ReductionReplay r = ReplayReduction(SimulateReduction(s));
  EXPECT_GT(r.aside, 80);
  EXPECT_EQ(r.aside + static_cast<int>(r.columns.size()), 400);
  EXPECT_TRUE(r.proved) << States(r);
  EXPECT_EQ(Claim(r, "start"), "5");
  s.non_finite = 1;
  EXPECT_EQ(ReplayReduction(SimulateReduction(s)).name, "unexplained");
}

TEST(Poison, OverflowOnTheWayIsReplayed) {
  ReductionSpec s;
  s.ranks = 16;
  s.dtype = DType::kF16;
  s.scale = 2000;
  s.samples = 400;
  const ReductionCase c = SimulateReduction(s);
  int infinite = 0;
  for (const double y : c.output) infinite += std::isinf(y);
  EXPECT_GT(infinite, 20);
  const ReductionReplay r = ReplayReduction(c);
  EXPECT_TRUE(r.proved) << States(r);
  EXPECT_EQ(r.name, "ring");
}

// Tests that if one bit is incorrect anywhere, nothing is explained.
TEST(Poison, OneWrongSampleIsNotExplained) {
  ReductionSpec s;
  s.ranks = 16;
  ReductionCase c = SimulateReduction(s);
  c.output[17] += UlpOf(c.output[17], DType::kBF16);
  const ReductionReplay r = ReplayReduction(c);
  EXPECT_EQ(r.name, "unexplained");
  EXPECT_EQ(r.runner_up_matches, 255);
}

}  // namespace
}  // namespace plumbline::analysis
