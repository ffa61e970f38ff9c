// Collectives as nobody would record them, and honest ones as somebody might: no crash, no work
// without bound, no accusation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "absl/strings/str_cat.h"
#include "rules/engine/engine.h"
#include "rules/lib/bias_stream.h"
#include "rules/lib/reduction_analysis.h"
#include "rules/lib/reduction_errors.h"
#include "tests/rules/support/simulated_reduction.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules {
namespace {

using testing::Draw;
using testing::ReductionRun;
using testing::ReductionSpec;

using Verdicts = std::vector<v1::Verdict>;

Verdicts Judge(std::vector<v1::Batch> batches) {
  Verdicts verdicts;
  auto engine = Engine::Create({.rules = {"precision/collective-*"}},
                               [&](const v1::Verdict& v) { verdicts.push_back(v); });
  EXPECT_TRUE(engine.ok());
  for (v1::Batch& batch : batches) {
    const absl::Status status = (*engine)->Add(std::move(batch));
    EXPECT_TRUE(status.ok()) << status;
  }
  (*engine)->Finish();
  return verdicts;
}

v1::Level Highest(const Verdicts& verdicts) {
  v1::Level level = v1::LEVEL_UNSPECIFIED;
  for (const v1::Verdict& v : verdicts) level = std::max(level, v.finding().level());
  return level;
}

std::string Text(const Verdicts& verdicts) {
  std::string text;
  for (const v1::Verdict& v : verdicts) absl::StrAppend(&text, v.ShortDebugString(), "\n");
  return text;
}

const v1::Verdict* Of(const Verdicts& verdicts, const std::string& rule) {
  for (const v1::Verdict& v : verdicts) {
    if (v.rule() == "precision/" + rule) return &v;
  }
  return nullptr;
}

v1::ReductionCall& CallOf(v1::Batch& batch, int i) {
  return *batch.mutable_evidence(i)->mutable_reduction()->mutable_call();
}

void ForEachCall(v1::Batch& batch, const std::function<void(v1::ReductionCall&)>& change) {
  for (int i = 0; i < batch.evidence_size(); ++i) change(CallOf(batch, i));
}

// A sum that lacks one of its addends is wrong in every element, and nobody's fault.

TEST(Joining, ALostRecordIsNoBias) {
  for (const char* group : {"", "dp"}) {
    for (const bool numbered : {true, false}) {
      for (const int lost : {0, 3, 7}) {
        ReductionSpec s;
        s.whole = false;
        s.steps = 3;
        s.samples = 400;
        s.missing = lost;
        v1::Batch batch = ReductionRun(s);
        ForEachCall(batch, [&](v1::ReductionCall& call) {
          call.set_group(group);
          if (!numbered) call.set_group_rank(0);
        });
        const Verdicts verdicts = Judge({batch});
        const v1::Verdict* sum = Of(verdicts, "collective-sum");
        ASSERT_NE(sum, nullptr);
        EXPECT_EQ(sum->reason().rfind("missing-ranks: ", 0), 0u) << Text(verdicts);
        EXPECT_EQ(Highest(verdicts), v1::LEVEL_UNSPECIFIED) << Text(verdicts);
      }
    }
  }
}

TEST(Joining, AGapInTheGroupRanksIsAMissingRank) {
  ReductionSpec s;
  s.whole = false;
  s.samples = 400;
  s.missing = 3;
  v1::Batch batch = ReductionRun(s);
  ForEachCall(batch, [](v1::ReductionCall& call) {
    call.set_group("dp");
    call.set_group_size(0);
  });
  const Verdicts verdicts = Judge({batch});
  EXPECT_EQ(Of(verdicts, "collective-sum")->reason().rfind("missing-ranks: rank 3", 0), 0u)
      << Text(verdicts);
}

TEST(Joining, MoreRecordsThanRanksAreAmbiguous) {
  const auto reason = [](v1::Batch batch) {
    return Of(Judge({std::move(batch)}), "collective-sum")->reason();
  };
  ReductionSpec s;
  s.whole = false;
  v1::Batch more = ReductionRun(s);
  ForEachCall(more, [](v1::ReductionCall& call) {
    call.set_group_rank(0);
    call.set_group_size(7);
  });
  EXPECT_EQ(reason(more).rfind("ambiguous-group: ", 0), 0u);
  v1::Batch twice = ReductionRun(s);
  *twice.add_evidence() = twice.evidence(2);
  EXPECT_EQ(reason(twice).rfind("ambiguous-group: rank 2", 0), 0u);
  s.whole = true;
  v1::Batch whole = ReductionRun(s);
  *whole.add_evidence() = whole.evidence(0);
  EXPECT_EQ(reason(whole).rfind("ambiguous-group: 2 records", 0), 0u);
  v1::Batch rows = ReductionRun(s);
  CallOf(rows, 0).set_group_size(9);
  EXPECT_EQ(reason(rows).rfind("bad-tensor: inputs: expected a row for each of the 9", 0), 0u);
}

// Numbers from the wire: nothing is counted up to, divided by or multiplied with unseen.
TEST(Wire, AbsurdNumbersAreRefusedOrBorne) {
  static constexpr uint64_t kOdd[] = {0,
                                      1,
                                      2,
                                      63,
                                      1u << 16,
                                      (1ull << 31) - 1,
                                      1ull << 31,
                                      (1ull << 32) - 1,
                                      1ull << 44,
                                      1ull << 62,
                                      (1ull << 63) - 1,
                                      1ull << 63,
                                      ~0ull - 1,
                                      ~0ull};
  std::mt19937 random(17);
  const auto odd = [&] { return kOdd[random() % std::size(kOdd)]; };
  for (int i = 0; i < 1500; ++i) {
    ReductionSpec s;
    s.seed = i + 1;
    s.whole = random() % 2 == 0;
    s.ranks = 2 + static_cast<int>(random() % 4);
    s.samples = 1 + static_cast<int>(random() % 8);
    s.record_count = false;
    v1::Batch batch = ReductionRun(s);
    const bool all = random() % 2 == 0;
    for (int e = 0; e < batch.evidence_size(); ++e) {
      v1::ReductionCall& call = CallOf(batch, all ? 0 : e);
      switch (random() % 8) {
        case 0:
          call.set_count(odd());
          break;
        case 1:
          call.set_group_size(static_cast<uint32_t>(odd()));
          break;
        case 2:
          call.set_channels(static_cast<uint32_t>(odd()));
          call.set_count(odd());
          break;
        case 3:
          call.set_chunk(odd());
          call.set_count(odd());
          break;
        case 4:
          call.set_group_rank(static_cast<uint32_t>(odd()));
          break;
        case 5:
          for (uint64_t n = 0; n < 2 * static_cast<uint64_t>(s.ranks); ++n)
            call.add_ring_order(static_cast<uint32_t>(odd()));
          break;
        case 6: {
          v1::ReductionSample& sample =
              *batch.mutable_evidence(e)->mutable_reduction()->mutable_sample();
          v1::Tensor& t = random() % 2 ? *sample.mutable_inputs() : *sample.mutable_output();
          t.set_shape(static_cast<int>(random() % static_cast<uint32_t>(t.shape_size())),
                      static_cast<int64_t>(odd()));
          break;
        }
        default: {
          const uint64_t value = odd();
          std::string& data = *batch.mutable_evidence(e)
                                   ->mutable_reduction()
                                   ->mutable_sample()
                                   ->mutable_offsets()
                                   ->mutable_data();
          data.replace(0, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
        }
      }
    }
    const Verdicts verdicts = Judge({batch});
    for (const v1::Verdict& v : verdicts) {
      const bool told = v.rule() == "precision/collective-mismatch" || !v.has_finding();
      EXPECT_TRUE(told || v.finding().level() == v1::LEVEL_NOTE) << v.ShortDebugString();
    }
  }
}

TEST(Work, ManyRanksAndFewSamples) {
  for (const int ranks : {5040, 20000}) {
    ReductionSpec s;
    s.model = "ring";
    s.ranks = ranks;
    s.samples = ranks > 10000 ? 1 : 8;
    const Verdicts verdicts = Judge({ReductionRun(s)});
    const v1::Verdict* sum = Of(verdicts, "collective-sum");
    ASSERT_NE(sum, nullptr);
    EXPECT_FALSE(sum->details().fields().at("proved").bool_value()) << Text(verdicts);
    EXPECT_TRUE(sum->details().fields().contains("not_tried"));
  }
}

// A group that never completes, in a hundred thousand copies, each said to have 2^32 - 1 ranks.
TEST(Work, ManyGroupsThatNeverComplete) {
  ReductionSpec s;
  s.whole = false;
  s.ranks = 2;
  s.samples = 1;
  s.missing = 1;
  v1::Batch batch = ReductionRun(s);
  const v1::Evidence one = batch.evidence(0);
  for (int i = 1; i < 100000; ++i) {
    v1::Evidence& e = *batch.add_evidence();
    e = one;
    e.mutable_reduction()->mutable_call()->set_group(absl::StrCat("g", i));
    e.mutable_reduction()->mutable_call()->set_group_size(~0u);
  }
  const Verdicts verdicts = Judge({batch});
  EXPECT_EQ(Highest(verdicts), v1::LEVEL_UNSPECIFIED);
  EXPECT_LT(verdicts.size(), 10u);
}

// 64 tensor-parallel columns each reduce their copy of one gradient: 64 calls, one draw.
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

// A call is unexplained beside one that is proved to be a narrow ring.
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
  const v1::Verdict* note = Of(verdicts, "collective-sum");
  ASSERT_NE(note, nullptr);
  EXPECT_EQ(note->finding().level(), v1::LEVEL_NOTE);
  EXPECT_EQ(note->finding().explanation().rfind("F16 ring", 0), 0u)
      << note->finding().explanation();
  EXPECT_EQ(note->details().fields().at("model").struct_value().fields().at("name").string_value(),
            "ring");
}

// One absurd result among many leaves the stream able to see.
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
  ReductionCase c = testing::SimulateReduction(s);
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
      if (explained) s.scale = 2000;  // sums up to 65,504 and beyond
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
      const v1::Verdict* found = Of(verdicts, "collective-overflow");
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
    const v1::Verdict* v = Of(verdicts, "collective-premultiply");
    return v != nullptr && v->has_finding();
  };
  EXPECT_TRUE(found(24, RoundToFormat(1.0 / 24, DType::kBF16)));
  EXPECT_TRUE(found(24, RoundToFormat(1.0 / 24, DType::kF16)));
  EXPECT_FALSE(found(24, .0417));       // a text of few digits
  EXPECT_FALSE(found(24, 1.003 / 24));  // a share of tokens
  EXPECT_FALSE(found(24, static_cast<float>(1.0 / 24)));
  EXPECT_FALSE(found(16, 1.0 / 16));
  EXPECT_FALSE(found(1000, 0));
}

// Honest sums of every kind of data, judged whole and rank by rank, in any order of arrival.
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
}  // namespace plumbline::rules
