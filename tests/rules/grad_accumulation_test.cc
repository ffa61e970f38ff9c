// Tests precision/grad-accumulation on simulated running sums: planted faults are found and clean
// sums give no finding, for both recording methods.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/rules/support/accumulation_run.h"
#include "tests/rules/support/verdicts.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using testing::AccumulationRun;
using testing::AccumulationSpec;
using testing::Highest;
using testing::Verdicts;
using testing::VerdictsOn;

Verdicts Judge(std::vector<v1::Batch> batches) {
  return VerdictsOn(std::move(batches), {.rules = {"precision/grad-accumulation"}});
}

double Detail(const v1::Verdict& v, const char* key) {
  return v.details().fields().at(key).number_value();
}
std::string Model(const v1::Verdict& v) {
  return v.details().fields().at("model").struct_value().fields().at("name").string_value();
}

// Tests that an fp32 sum of any length and recording passes.
TEST(GradAccumulation, HealthySumsPass) {
  for (const char* evidence : {"reduction", "update"}) {
    for (int adds : {4, 64, 1024}) {
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        AccumulationSpec spec{.evidence = evidence,
                              .steps = 3,
                              .adds = adds,
                              .samples = 64,
                              .dtype = DType::kF32,
                              .result = DType::kF32,
                              .seed = seed};
        const auto verdicts = Judge({AccumulationRun(spec)});
        ASSERT_EQ(verdicts.size(), 1u);
        EXPECT_EQ(verdicts[0].kind(), v1::Verdict::KIND_PASS) << verdicts[0].reason();
        if (evidence == std::string("update")) {
          EXPECT_LT(Detail(verdicts[0], "lost_add_share"), 1e-3) << adds;
        }
      }
    }
  }
}

// Prints the power: the detected lengths and noise levels for 256 elements of one step.
TEST(GradAccumulation, PowerOverLengthAndNoise) {
  constexpr int kSeeds = 5;
  for (double spread : {0.3, 0.5, 1.0, 3.0}) {
    std::printf("  spread/mean %.1f (warnings + errors):", spread);
    for (int adds : {16, 64, 256, 512, 1024}) {
      int warned = 0;
      int erred = 0;
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        AccumulationSpec spec{.adds = adds, .spread = spread, .seed = seed};
        const v1::Level level = Highest(Judge({AccumulationRun(spec)}));
        warned += level == v1::LEVEL_WARNING ? 1 : 0;
        erred += level == v1::LEVEL_ERROR ? 1 : 0;
      }
      std::printf("  K=%d %d+%d/%d", adds, warned, erred, kSeeds);
      if (adds <= 64) {
        EXPECT_EQ(warned + erred, 0) << spread << " " << adds;
      }
      if (adds == 1024 && spread <= 1) {
        EXPECT_EQ(erred, kSeeds) << spread;
      }
    }
    std::printf("\n");
  }
}

TEST(GradAccumulation, BothRecordingsGiveTheSame) {
  AccumulationSpec spec{.adds = 600, .samples = 200};
  const auto one = Judge({AccumulationRun(spec)});
  spec.evidence = "update";
  const auto other = Judge({AccumulationRun(spec)});
  spec.evidence = "reduction";
  spec.segments = 5;
  const auto pieces = Judge({AccumulationRun(spec)});
  ASSERT_EQ(one.size(), 1u);
  ASSERT_EQ(other.size(), 1u);
  ASSERT_EQ(pieces.size(), 1u);
  for (const auto* v : {&other[0], &pieces[0]}) {
    EXPECT_EQ(v->finding().level(), one[0].finding().level());
    EXPECT_EQ(v->finding().bias().mean(), one[0].finding().bias().mean());
    EXPECT_EQ(Detail(*v, "lost_add_share"), Detail(one[0], "lost_add_share"));
    EXPECT_EQ(Model(*v), "sequential");
  }
}

// Tests that a restart that repeats a step adds no evidence: the same elements are drawn again and
// count once.
TEST(GradAccumulation, RepeatedStepsCountOnce) {
  AccumulationSpec spec{.steps = 2, .adds = 16};
  v1::Batch first = AccumulationRun(spec);
  v1::Batch second = first;
  for (v1::Source& source : *second.mutable_sources()) source.set_attempt(1);
  const auto once = Judge({first});
  // The first attempt is judged completely before the second begins.
  test::AddProgress(&first, 1);
  const auto twice = Judge({first, second});
  ASSERT_EQ(once.size(), 1u);
  ASSERT_EQ(twice.size(), 1u);
  EXPECT_EQ(twice[0].finding().sample_size(), once[0].finding().sample_size());
  EXPECT_EQ(Detail(twice[0], "mean"), Detail(once[0], "mean"));
}

// Tests that malformed evidence gives a reason, never a verdict or a crash.
TEST(GradAccumulation, MalformedEvidence) {
  const v1::Batch good = AccumulationRun({.adds = 8, .samples = 16});
  const auto spoil = [&](auto change) {
    v1::Batch batch = good;
    change(*batch.mutable_evidence(0)->mutable_reduction()->mutable_sample());
    const auto verdicts = Judge({batch});
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].kind(), v1::Verdict::KIND_INCONCLUSIVE);
    EXPECT_EQ(verdicts[0].reason().rfind("malformed:", 0), 0u) << verdicts[0].reason();
  };
  spoil([](auto& s) { s.mutable_inputs()->mutable_data()->resize(7); });
  spoil([](auto& s) { s.mutable_inputs()->set_shape(0, 9); });
  spoil([](auto& s) { s.mutable_inputs()->set_shape(0, -1); });
  spoil([](auto& s) { s.mutable_inputs()->set_shape(0, int64_t{1} << 62); });
  spoil([](auto& s) { s.mutable_inputs()->set_dtype(v1::DTYPE_I32); });
  spoil([](auto& s) { s.mutable_inputs()->clear_shape(); });
  spoil([](auto& s) { s.mutable_output()->mutable_data()->clear(); });
  spoil([](auto& s) {
    s.mutable_output()->set_shape(0, 15);
    s.mutable_output()->mutable_data()->resize(30);
  });
}

// Tests a biased sum with too few elements per tensor for its own stream. e-BH over the tensors of
// the run names it.
TEST(GradAccumulation, SmallTensorsAreNamedTogether) {
  v1::Batch all;
  for (int layer = 0; layer < 6; ++layer) {
    AccumulationSpec spec{.adds = 1024,
                          .samples = 48,
                          .count = 48,
                          .layer = "layers." + std::to_string(layer) + ".norm.weight",
                          .seed = static_cast<uint64_t>(layer) + 1};
    const v1::Batch one = AccumulationRun(spec);
    if (layer == 0) all = one;
    if (layer > 0) all.mutable_evidence()->MergeFrom(one.evidence());
  }
  const auto verdicts = Judge({all});
  ASSERT_EQ(verdicts.size(), 6u);
  for (const v1::Verdict& v : verdicts) {
    EXPECT_EQ(v.finding().level(), v1::LEVEL_ERROR) << v.site().layer() << v.reason();
  }
}

}  // namespace
}  // namespace plumbline::rules
