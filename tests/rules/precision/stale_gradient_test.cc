// Tests precision/stale-gradient on gradients that are not cleared: found if planted, for every
// dtype and all values; no finding if they are cleared or replaced.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/rules/support/accumulation_run.h"
#include "tests/rules/support/verdicts.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using testing::AccumulationRun;
using testing::AccumulationSpec;
using testing::Verdicts;
using testing::VerdictsOf;

Verdicts Judge(std::vector<v1::Batch> batches) {
  return VerdictsOf("precision/stale-gradient", std::move(batches));
}

AccumulationSpec Spec(const std::string& left, uint64_t seed, DType dtype = DType::kBF16) {
  return {.steps = 4,
          .adds = 2,
          .samples = 8,
          .dtype = dtype,
          .result = dtype,
          .addend = dtype,
          .left = left,
          .seed = seed};  // fmt: skip
}

TEST(StaleGradient, IsFoundInEveryDtype) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const Verdicts verdicts = Judge({AccumulationRun(Spec("stale", seed, dtype))});
      ASSERT_EQ(verdicts.size(), 1u);
      EXPECT_EQ(verdicts[0].finding().level(), v1::LEVEL_ERROR) << verdicts[0].reason();
      EXPECT_EQ(verdicts[0].site().step_first(), 1);
    }
  }
}

TEST(StaleGradient, IsSilentWhereItIsClearedOrAnother) {
  for (const char* left : {"cleared", "twin", "changed", ""}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const Verdicts verdicts = Judge({AccumulationRun(Spec(left, seed))});
      ASSERT_EQ(verdicts.size(), 1u);
      EXPECT_EQ(verdicts[0].kind(), left == std::string("cleared") ? v1::Verdict::KIND_PASS
                                                                   : v1::Verdict::KIND_INCONCLUSIVE)
          << left;
    }
  }
}

// Tests that only the faulty rank is named.
TEST(StaleGradient, NamesItsRank) {
  for (int rank = 0; rank < 4; ++rank) {
    AccumulationSpec spec = Spec("stale", 5);
    spec.ranks = 4;
    spec.left_stale_rank = rank;
    const Verdicts verdicts = Judge({AccumulationRun(spec)});
    ASSERT_EQ(verdicts.size(), 1u);
    ASSERT_EQ(verdicts[0].site().ranks_size(), 1);
    EXPECT_EQ(verdicts[0].site().ranks(0), static_cast<uint32_t>(rank));
  }
}

// Tests that sixty-three elements are too few, and sixty-four are enough.
TEST(StaleGradient, NeedsSixtyFourElements) {
  AccumulationSpec spec = Spec("stale", 2);
  spec.left_samples = 63;
  EXPECT_EQ(Judge({AccumulationRun(spec)})[0].kind(), v1::Verdict::KIND_INCONCLUSIVE);
  spec.left_samples = 64;
  EXPECT_EQ(Judge({AccumulationRun(spec)})[0].kind(), v1::Verdict::KIND_FINDING);
}

// Tests that a restart that repeats the only stale step does not count as two.
TEST(StaleGradient, RepeatedStepsCountOnce) {
  AccumulationSpec spec = Spec("stale", 3);
  spec.steps = 2;
  v1::Batch first = AccumulationRun(spec), second = first;
  for (v1::Source& source : *second.mutable_sources()) source.set_attempt(1);
  test::AddProgress(&first, 1);
  const Verdicts verdicts = Judge({first, second});
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(testing::Outcome(verdicts[0]), "one-step");
}

// Tests that sums alone are sufficient only if no step is missing, because a missing step may have
// cleared them.
TEST(StaleGradient, SumsAloneNeedEveryStep) {
  AccumulationSpec spec = Spec("", 6, DType::kF32);
  spec.samples = 80;
  spec.steps = 8;
  spec.carries = "on";
  v1::Batch batch = AccumulationRun(spec);
  EXPECT_EQ(testing::Findings(Judge({batch}), "precision/stale-gradient"), 1);
  auto& all = *batch.mutable_evidence();
  all.erase(std::remove_if(all.begin(), all.end(), [](const auto& e) { return e.step() == 4; }),
            all.end());
  EXPECT_EQ(testing::Findings(Judge({batch}), "precision/stale-gradient"), 0);
  spec.samples = 60;
  EXPECT_EQ(testing::Findings(Judge({AccumulationRun(spec)}), "precision/stale-gradient"), 0);
}

TEST(StaleGradient, MalformedEvidence) {
  const auto spoil = [&](auto change) {
    v1::Batch batch = AccumulationRun(Spec("stale", 4));
    for (v1::Evidence& evidence : *batch.mutable_evidence()) {
      if (evidence.reduction().call().algorithm() == "left-gradient")
        change(*evidence.mutable_reduction()->mutable_sample());
    }
    const Verdicts verdicts = Judge({batch});
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(testing::Outcome(verdicts[0]), "malformed");
  };
  spoil([](auto& s) { s.mutable_inputs()->mutable_data()->resize(7); });
  spoil([](auto& s) { s.mutable_output()->mutable_data()->clear(); });
  spoil([](auto& s) { s.mutable_output()->set_dtype(v1::DTYPE_F32); });
  spoil([](auto& s) { s.mutable_inputs()->set_dtype(v1::DTYPE_I32); });
  spoil([](auto& s) { s.clear_inputs(); });
}

}  // namespace
}  // namespace plumbline::rules
