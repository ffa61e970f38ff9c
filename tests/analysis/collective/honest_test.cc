// Tests correct collectives in many recording variants: no finding; and the findings on incorrect
// ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/collective/analysis.h"
#include "analysis/collective/errors.h"
#include "analysis/statistics/bias_stream.h"
#include "tests/rules/support/judged_reductions.h"
#include "tests/rules/support/simulated_reduction.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::analysis {
namespace {

using rules::testing::CallOf;
using rules::testing::Draw;
using rules::testing::Highest;
using rules::testing::Judge;
using rules::testing::Of;
using rules::testing::ReductionRun;
using rules::testing::ReductionSpec;
using rules::testing::Text;
using rules::testing::Verdicts;

// Tests 64 tensor-parallel columns that each reduce their copy of one gradient: 64 calls, one draw.
TEST(Bias, GroupsThatHoldCopiesAreOneDraw) {
  int accused = 0;
  for (int seed = 1; seed <= 20; ++seed) {
    ReductionSpec s;
    s.seed = seed;
    s.ranks = 6;
    s.samples = 24;
    s.segments = "constant";
    v1::Batch batch = ReductionRun(s);
    const v1::Evidence one = batch.evidence(0);
    for (int g = 1; g < 64; ++g) {
      v1::Evidence& e = *batch.add_evidence();
      e = one;
      e.mutable_reduction()->mutable_call()->set_group(absl::StrCat("dp", g));
    }
    accused += Highest(Judge({batch})) > v1::LEVEL_NOTE;
  }
  EXPECT_EQ(accused, 0);
}

TEST(Bias, WhatIsKeptHoldsNoValues) {
  ReductionSpec s;
  s.samples = 64;
  v1::Batch batch = ReductionRun(s);
  SiteStep step;
  step.items.push_back({&batch.sources(0), &batch.evidence(0)});
  const auto all = AnalyseReductions(step);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]->c.inputs.size(), 512u);
  const auto kept = WithoutValues(*all[0]);
  EXPECT_TRUE(kept->c.inputs.empty() && kept->c.output.empty() && kept->c.offsets.empty());
  EXPECT_EQ(kept->replay.shapes, nullptr);
  EXPECT_EQ(kept->joined, nullptr);
  EXPECT_EQ(kept->replay.Words(), all[0]->replay.Words());
  EXPECT_EQ(kept->c.result_dtype(), DType::kBF16);
}

// Tests an unexplained call together with a call that is proved to be a narrow ring.
TEST(Bias, TheNoteSpeaksOfTheCallItProves) {
  ReductionSpec s;
  s.dtype = DType::kF16;
  s.ranks = 5;
  s.samples = 400;
  v1::Batch batch = ReductionRun(s);
  s.model = "split-ring";
  s.seed = 2;
  v1::Evidence other = ReductionRun(s).evidence(0);
  other.mutable_reduction()->mutable_call()->set_group("other");
  *batch.add_evidence() = other;
  const Verdicts verdicts = Judge({batch});
  const v1::Verdict* note = Of(verdicts, "precision/collective-sum");
  ASSERT_NE(note, nullptr);
  EXPECT_EQ(note->finding().level(), v1::LEVEL_NOTE);
  EXPECT_EQ(note->finding().explanation().rfind("F16 ring", 0), 0u)
      << note->finding().explanation();
  EXPECT_EQ(note->details().fields().at("model").struct_value().fields().at("name").string_value(),
            "ring");
}

// Tests that one extreme result among many does not reduce the power of the stream.
TEST(Bias, NoErrorPoisonsAStream) {
  BiasStream stream(1e-6);
  std::vector<double> errors(400, 0.5);
  errors[7] = 1e300;
  errors[8] = -1.7e308;
  errors[9] = std::nan("");
  stream.Add(errors, 1 << 20);
  EXPECT_EQ(stream.refused(), 3u);
  EXPECT_TRUE(std::isfinite(stream.mean()) && std::isfinite(stream.half_width()));
  EXPECT_EQ(stream.level(), v1::LEVEL_WARNING);
  RelativeErrorSum relative;
  ReductionSpec s;
  s.dtype = DType::kF64;
  ReductionCase c = rules::testing::SimulateReduction(s);
  c.output[3] = 1e308;
  relative.Take(c);
  EXPECT_TRUE(std::isfinite(relative.Get().mean) && std::isfinite(relative.Get().standard_error));
}

TEST(Overflow, WhatCannotOverflowDidNot) {
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    for (const bool explained : {false, true}) {
      ReductionSpec s;
      s.samples = 64;
      s.dtype = DType::kF16;
      s.ranks = 16;
      if (explained) s.scale = 2000;  // sums up to 65,504 and above
      v1::Batch batch = ReductionRun(s);
      if (explained) {
        CallOf(batch, 0).set_postscale(1.0 / 16);
      } else {
        const uint16_t bits = FloatToF16(static_cast<float>(bad));
        batch.mutable_evidence(0)
            ->mutable_reduction()
            ->mutable_sample()
            ->mutable_output()
            ->mutable_data()
            ->replace(0, 2, reinterpret_cast<const char*>(&bits), 2);
      }
      const Verdicts verdicts = Judge({batch});
      const v1::Verdict* found = Of(verdicts, "precision/collective-overflow");
      ASSERT_NE(found, nullptr);
      EXPECT_EQ(found->finding().level(), v1::LEVEL_ERROR);
      EXPECT_EQ(found->finding().cause().id() == "not-an-overflow", !explained) << Text(verdicts);
    }
  }
}

TEST(Premultiply, OnlyARoundingOfTheReciprocalIsOne) {
  const auto found = [](int ranks, double factor) {
    ReductionSpec s;
    s.ranks = ranks;
    s.samples = 32;
    s.prescale = factor;
    const Verdicts verdicts = Judge({ReductionRun(s)});
    const v1::Verdict* v = Of(verdicts, "precision/collective-premultiply");
    return v != nullptr && v->has_finding();
  };
  EXPECT_TRUE(found(24, RoundToFormat(1.0 / 24, DType::kBF16)));
  EXPECT_TRUE(found(24, RoundToFormat(1.0 / 24, DType::kF16)));
  EXPECT_FALSE(found(24, .0417));       // text with few digits
  EXPECT_FALSE(found(24, 1.003 / 24));  // a fraction of tokens
  EXPECT_FALSE(found(24, static_cast<float>(1.0 / 24)));
  EXPECT_FALSE(found(16, 1.0 / 16));
  EXPECT_FALSE(found(1000, 0));
}

// Returns correct sums of every kind of data, judged as a whole and per rank, in any order of
// arrival.
ReductionSpec HonestSpec(Draw& draw, int seed) {
  static const char* const kModels[] = {"ring", "tree", "halving", "fp32", "exact", "random-order"};
  static const char* const kAverages[] = {"none", "none", "post-divided", "pre-divided"};
  static constexpr DType kDTypes[] = {DType::kBF16, DType::kF16, DType::kF32, DType::kF64};
  const auto pick = [&](int n) { return static_cast<int>(draw.Uniform() * n); };
  ReductionSpec s;
  s.seed = seed;
  s.model = kModels[pick(6)];
  s.dtype = kDTypes[pick(4)];
  if (s.model == "fp32" && s.dtype == DType::kF64) s.model = "exact";
  s.average = kAverages[pick(4)];
  s.ranks = 2 + pick(12);
  s.samples = 1 + pick(200);
  s.steps = 1 + pick(3);
  s.count = s.samples + pick(100000);
  s.whole = draw.Uniform() < .5;
  s.mean = draw.Uniform() < .5 ? 1 : 0;
  s.spread = draw.Uniform() < .2 ? 0 : draw.Uniform() * 3;
  if (s.mean == 0 && s.spread == 0) s.spread = 1;
  s.zeros = draw.Uniform() < .3 ? draw.Uniform() : 0;
  s.non_finite = draw.Uniform() < .3 ? draw.Uniform() : 0;
  s.kinds = draw.Uniform() < .2 ? 1 + pick(5) : 0;
  s.record_offsets = draw.Uniform() < .8;
  s.record_count = draw.Uniform() < .8;
  const int low = s.dtype == DType::kF16 ? -24 : s.dtype == DType::kF64 ? -1060 : -140;
  if (draw.Uniform() < .3) s.scale = std::ldexp(1, low + pick(12));
  return s;
}

TEST(Honest, NoSumIsAccusedAndOrderOfArrivalIsNothing) {
  Draw draw(29);
  std::mt19937 random(3);
  const int cases = std::getenv("PLUMB_LONG") != nullptr ? 3000 : 40;
  int accused = 0;
  for (int i = 0; i < cases; ++i) {
    const ReductionSpec s = HonestSpec(draw, i + 1);
    v1::Batch batch = ReductionRun(s);
    const Verdicts verdicts = Judge({batch});
    accused += Highest(verdicts) > v1::LEVEL_NOTE;
    EXPECT_LE(Highest(verdicts), v1::LEVEL_NOTE)
        << s.model << " " << DTypeName(s.dtype) << " " << s.average << " N=" << s.ranks
        << " m=" << s.samples << " kinds " << s.kinds << " scale " << s.scale << " seed " << s.seed
        << "\n"
        << Text(verdicts);
    std::shuffle(batch.mutable_evidence()->pointer_begin(), batch.mutable_evidence()->pointer_end(),
                 random);
    EXPECT_EQ(Text(verdicts), Text(Judge({batch})));
  }
  RecordProperty("accused", absl::StrCat(accused, " of ", cases));
}

}  // namespace
}  // namespace plumbline::analysis
