// Tests simulated collectives with unidentifiable arithmetic (a tie, too few samples, unlisted
// arithmetic): the replay proves none. Also tests the number of samples for a proof.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/collective/replay/replayed.h"
#include "tests/rules/support/replay_words.h"
#include "tests/rules/support/simulated_reduction.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::analysis {
namespace {

using rules::testing::Draw;
using rules::testing::Pick;
using rules::testing::ReductionSpec;
using rules::testing::SimulateReduction;
using rules::testing::States;
using rules::testing::Words;

TEST(Ties, TwoRanksDistinguishNothing) {
  ReductionSpec s;
  s.ranks = 2;
  const ReductionReplay r = ReplayReduction(SimulateReduction(s));
  EXPECT_EQ(r.name, "indistinguishable");
  EXPECT_TRUE(r.explained);
  EXPECT_FALSE(r.proved);
  EXPECT_FALSE(r.narrow_partials);
}

TEST(Ties, ExactSumsDistinguishNothing) {
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
  EXPECT_FALSE(r.proved) << States(r);
}

// Tests that unlisted arithmetic is never proved to be a listed one. If sums equal a listed one on
// every sample, they cannot be distinguished; sums of few ranks are therefore omitted (see below).
// A compensated sum may be named a wide accumulation "or a compensated sum", which is correct.
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
    // A tree of threes over 5, 6, 9 or 12 ranks equals a tree of halves, or of groups.
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
    EXPECT_FALSE(r.proved) << Words(s) << "\n  states " << States(r);
    EXPECT_FALSE(r.class_proved && !compensated) << Words(s) << "\n  states " << States(r);
    EXPECT_TRUE(!r.class_proved || r.name == "fp32" || r.name == "exact") << States(r);
  }
  for (const auto& [model, n] : tried)
    RecordProperty(model, absl::StrCat(proved[model], " proved, ", either[model],
                                       " or compensated, ", explained[model], " explained of ", n));
}

// Tests tensors with few values: many samples, but few observations.
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
    EXPECT_FALSE(r.class_proved) << Words(s) << " kinds " << s.kinds << "\n  states " << States(r);
    EXPECT_LT(r.distinct, s.model == "stochastic" ? 64 : s.model == "random-order" ? 64 : 5);
  }
  RecordProperty("explained", explained);
}

// Tests that a repeated sample is one observation, but must still be explained.
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

// Prints the number of samples until the ring is proved, on coherent data.
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
}  // namespace plumbline::analysis
