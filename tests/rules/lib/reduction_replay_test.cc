// Simulated collectives whose arithmetic is known: what the replay names, and what it never does.
#include "rules/lib/reduction_replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/rules/support/simulated_reduction.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules {
namespace {

using testing::Draw;
using testing::ReductionSpec;
using testing::SimulateReduction;

std::string Words(const ReductionSpec& s) {
  return absl::StrCat(s.model, " ", DTypeName(s.dtype), " N=", s.ranks, " m=", s.samples, " ",
                      s.average, " start ", s.start, " direction ", s.direction, " ", s.segments,
                      " group ", s.group, " order ", s.order, " mean ", s.mean, " seed ", s.seed);
}

std::string Says(const ReductionReplay& r) {
  return absl::StrCat(r.Words(), r.proved ? " (proved) " : " ", r.matches, "/", r.columns.size(),
                      ", k ", r.discriminating, " of ", r.needed, "; ", r.runner_up, ": ",
                      r.runner_up_matches);
}

int Pick(Draw& draw, int n) { return static_cast<int>(draw.Uniform() * n); }

std::string Claim(const ReductionReplay& r, const std::string& key) {
  const auto found = r.parameters.find(key);
  return found == r.parameters.end() ? "-" : found->second;
}

// A random collective of a listed kind.
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

// Parameters are claimed as they are or, now and then, not claimed.
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
    SCOPED_TRACE(Words(s) + "\n  says " + Says(r));
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
  // 400 samples tell nearly everything; what they do not tell is not claimed.
  EXPECT_LE(unproved, cases / 100);
  EXPECT_LE(claims.absent, cases / 100);
  RecordProperty("unproved", unproved);
  RecordProperty("unclaimed", claims.absent);
  RecordProperty("wide", absl::StrCat(wide_proved, " told from compensated sums, of ", wide_seen));
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
        SCOPED_TRACE(Words(s) + "\n  says " + Says(r));
        EXPECT_EQ(r.name, "ring");
        EXPECT_TRUE(r.proved);
        EXPECT_EQ(Claim(r, "averaging"), average);
      }
    }
  }
  // A power of two of ranks: dividing is the same wherever it happens, and is not claimed.
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
    SCOPED_TRACE(Says(r));
    EXPECT_TRUE(r.proved);
    EXPECT_EQ(r.name, "ring");
    EXPECT_EQ(Claim(r, "start"), "7");
    EXPECT_EQ(Claim(r, "ring_order"), s.order);
  }
  // More ranks than orders can be searched for.
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
  EXPECT_TRUE(one.proved) << Says(one);
  EXPECT_EQ(Claim(one, "start"), "1");
  EXPECT_EQ(Claim(one, "segments"), "channels");
  std::vector<int> orders;
  for (int channel = 0; channel < 4; ++channel) {
    for (int i = 0; i < 16; ++i) orders.push_back(i * (2 * channel + 3) % 16);
  }
  s.order = absl::StrJoin(orders, ",");
  const ReductionReplay each = ReplayReduction(SimulateReduction(s));
  EXPECT_TRUE(each.proved) << Says(each);
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
          0;  // a bf16 sum of 1,024 like values loses its last addends, and with them the start
      s.spread = 1;
      const ReductionReplay r = ReplayReduction(SimulateReduction(s));
      SCOPED_TRACE(Words(s) + "\n  says " + Says(r));
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
    SCOPED_TRACE(Says(r));
    EXPECT_EQ(r.matches, static_cast<int>(r.columns.size()));
    if (flush) {
      EXPECT_EQ(Claim(r, "flush"), "inputs and results");
    }
  }
}

TEST(Ties, TwoRanksTellNothingApart) {
  ReductionSpec s;
  s.ranks = 2;
  const ReductionReplay r = ReplayReduction(SimulateReduction(s));
  EXPECT_EQ(r.name, "indistinguishable");
  EXPECT_TRUE(r.explained);
  EXPECT_FALSE(r.proved);
  EXPECT_FALSE(r.narrow_partials);
}

TEST(Ties, ExactSumsTellNothingApart) {
  ReductionSpec s;
  s.zeros = 1;
  EXPECT_EQ(ReplayReduction(SimulateReduction(s)).name, "indistinguishable");
  // Small integers: no partial sum is rounded.
  ReductionCase c = SimulateReduction(s);
  for (int i = 0; i < c.samples; ++i) {
    double sum = 0;
    for (int rank = 0; rank < c.ranks; ++rank) {
      const auto at = static_cast<size_t>(rank * c.samples + i);
      c.inputs[at] = (rank * 7 + i) % 5;
      sum += c.inputs[at];
    }
    c.output[static_cast<size_t>(i)] = sum;
  }
  const ReductionReplay r = ReplayReduction(c);
  EXPECT_EQ(r.name, "indistinguishable");
  EXPECT_FALSE(r.proved);
  EXPECT_FALSE(r.narrow_partials);
}

TEST(Ties, FewSamplesProveNothing) {
  ReductionSpec s;
  s.samples = 16;
  const ReductionReplay r = ReplayReduction(SimulateReduction(s));
  EXPECT_TRUE(r.explained);
  EXPECT_FALSE(r.proved) << Says(r);
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
  EXPECT_TRUE(r.proved) << Says(r);
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
  EXPECT_TRUE(r.proved) << Says(r);
  EXPECT_EQ(r.name, "ring");
}

// A wrong bit anywhere leaves nothing explained.
TEST(Poison, OneWrongSampleIsNotExplained) {
  ReductionSpec s;
  s.ranks = 16;
  ReductionCase c = SimulateReduction(s);
  c.output[17] += UlpOf(c.output[17], DType::kBF16);
  const ReductionReplay r = ReplayReduction(c);
  EXPECT_EQ(r.name, "unexplained");
  EXPECT_EQ(r.runner_up_matches, 255);
}

// Arithmetics outside the list are never proved to be one on it. (Sums that agree with a listed one
// on every sample cannot be told from it: those of few ranks are left out, see below.) A
// compensated sum may be said to be a wide accumulation "or a compensated sum", which it is.
TEST(Unlisted, NeverNamed) {
  static const char* const kModels[] = {"kahan",        "stochastic", "three-way",
                                        "random-order", "split-ring", "neumaier"};
  static constexpr int kRanks[] = {5, 6, 7, 9, 12, 16};
  Draw draw(11);
  const int cases = std::getenv("PLUMB_LONG") != nullptr ? 12000 : 400;
  std::map<std::string, int> proved, either, explained, tried;
  for (int i = 0; i < cases; ++i) {
    ReductionSpec s;
    s.seed = i + 1;
    s.model = kModels[Pick(draw, 6)];
    s.ranks = kRanks[Pick(draw, 6)];
    // A tree of threes over 5, 6, 9 or 12 ranks is one of halves, or of groups.
    if (s.model == "three-way") s.ranks = draw.Uniform() < .3 ? 7 : draw.Uniform() < .5 ? 10 : 16;
    s.samples = 32 << Pick(draw, 4);
    s.count = 1000 << Pick(draw, 10);
    s.dtype = draw.Uniform() < .5 ? DType::kBF16 : DType::kF16;
    s.mean = draw.Uniform() < .5 ? 1 : 0;
    s.spread = s.mean == 0 ? 1 : draw.Uniform();
    const ReductionReplay r = ReplayReduction(SimulateReduction(s));
    ++tried[s.model];
    explained[s.model] += r.explained;
    proved[s.model] += r.proved;
    const bool compensated = s.model == "kahan" || s.model == "neumaier";
    either[s.model] += r.class_proved;
    EXPECT_FALSE(r.proved) << Words(s) << "\n  says " << Says(r);
    EXPECT_FALSE(r.class_proved && !compensated) << Words(s) << "\n  says " << Says(r);
    EXPECT_TRUE(!r.class_proved || r.name == "fp32" || r.name == "exact") << Says(r);
  }
  for (const auto& [model, n] : tried)
    RecordProperty(model, absl::StrCat(proved[model], " proved, ", either[model],
                                       " or compensated, ", explained[model], " explained of ", n));
}

// Tensors filled with few values: as many samples as one likes, few observations.
TEST(Unlisted, RepeatedSamplesAreOneObservation) {
  static const char* const kModels[] = {"kahan", "stochastic", "random-order", "split-ring"};
  Draw draw(13);
  int explained = 0;
  for (int i = 0; i < 400; ++i) {
    ReductionSpec s;
    s.seed = i + 1;
    s.model = kModels[Pick(draw, 4)];
    s.ranks = 3 + Pick(draw, 14);
    s.kinds = 1 + Pick(draw, 4);
    s.dtype = draw.Uniform() < .5 ? DType::kBF16 : DType::kF16;
    const ReductionReplay r = ReplayReduction(SimulateReduction(s));
    explained += r.explained;
    EXPECT_FALSE(r.class_proved) << Words(s) << " kinds " << s.kinds << "\n  says " << Says(r);
    EXPECT_LT(r.distinct, s.model == "stochastic" ? 64 : s.model == "random-order" ? 64 : 5);
  }
  RecordProperty("explained", explained);
}

// A repeated sample is one observation, and it must still be explained.
TEST(Unlisted, RepeatsThatDisagreeExplainNothing) {
  ReductionSpec s;
  s.kinds = 40;
  s.samples = 400;
  s.segments = "constant";
  ReductionCase c = SimulateReduction(s);
  EXPECT_EQ(ReplayReduction(c).name, "ring");
  c.output[399] = c.output[399 - 40] * 1.0078125;
  c.output[398] = c.output[399];
  EXPECT_EQ(ReplayReduction(c).name, "unexplained");
}

ReductionCase First(const ReductionCase& whole, int samples) {
  ReductionCase part = whole;
  part.samples = samples;
  part.output.resize(static_cast<size_t>(samples));
  part.offsets.resize(static_cast<size_t>(samples));
  part.inputs.clear();
  for (int r = 0; r < whole.ranks; ++r) {
    for (int i = 0; i < samples; ++i) part.inputs.push_back(whole.input(r, i));
  }
  return part;
}

// Samples until the ring is proved, on coherent data.
TEST(Power, SamplesNeeded) {
  for (const auto& [ranks, usual] : std::map<int, int>{{4, 130}, {8, 80}, {16, 50}, {64, 45}}) {
    ReductionSpec s;
    s.ranks = ranks;
    s.samples = 256;
    s.start = 1;
    std::vector<int> needed;
    for (s.seed = 1; s.seed <= (ranks == 8 ? 3 : 7); ++s.seed) {
      const ReductionCase whole = SimulateReduction(s);
      int low = 1, high = s.samples;
      while (low < high) {
        const int m = (low + high) / 2;
        if (ReplayReduction(First(whole, m)).proved) {
          high = m;
        } else {
          low = m + 1;
        }
      }
      needed.push_back(low);
    }
    std::sort(needed.begin(), needed.end());
    RecordProperty(absl::StrCat("ranks_", ranks), needed[needed.size() / 2]);
    EXPECT_LE(needed[needed.size() / 2], usual) << ranks;
  }
}

}  // namespace
}  // namespace plumbline::rules
