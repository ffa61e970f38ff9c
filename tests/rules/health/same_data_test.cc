// Tests health/same-data: any two ranks that share their gradients are named, whatever the values;
// ranks with different data never are.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/rules/support/simulated_reduction.h"
#include "tests/rules/support/verdicts.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using testing::ReductionRun;
using testing::ReductionSpec;
using testing::Verdicts;
using testing::VerdictsOf;

Verdicts Judge(std::vector<v1::Batch> batches) {
  return VerdictsOf("health/same-data", std::move(batches));
}

ReductionSpec Spec(int seed, int ranks = 8) {
  ReductionSpec spec;
  spec.layer = "gradients.0";
  spec.model = "fp32";
  spec.ranks = ranks;
  spec.samples = 96;
  spec.mean = 0;
  spec.steps = 6;
  spec.whole = false;
  spec.seed = seed;
  return spec;
}

TEST(SameData, NamesTheRanksThatShare) {
  std::mt19937_64 random(1);
  for (int seed = 1; seed <= 30; ++seed) {
    ReductionSpec spec = Spec(seed);
    spec.dtype = seed % 2 == 0 ? DType::kBF16 : DType::kF32;
    const auto one = static_cast<uint32_t>(random() % 7);
    const auto other = static_cast<uint32_t>(one + 1 + random() % (7 - one));
    spec.same = absl::StrCat(one, ",", other);
    spec.same_from = static_cast<int>(random() % 3);
    spec.non_finite = seed % 3 == 0 ? 0.05 : 0;
    spec.zeros = seed % 5 == 0 ? 0.1 : 0;
    const Verdicts verdicts = Judge({ReductionRun(spec)});
    ASSERT_EQ(verdicts.size(), 1u);
    ASSERT_EQ(verdicts[0].finding().level(), v1::LEVEL_ERROR) << verdicts[0].reason();
    ASSERT_EQ(verdicts[0].site().ranks_size(), 2);
    EXPECT_EQ(verdicts[0].site().ranks(0), one);
    EXPECT_EQ(verdicts[0].site().ranks(1), other);
  }
}

// Ranks with different data, in a dtype so narrow that single values are often equal.
TEST(SameData, OwnBatchesAreSilent) {
  for (int seed = 1; seed <= 30; ++seed) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      ReductionSpec spec = Spec(seed);
      spec.dtype = dtype;
      spec.spread = seed % 2 == 0 ? 0.3 : 0.003;
      spec.mean = 1;
      spec.zeros = seed % 3 == 0 ? 0.3 : 0;
      spec.identical = 0.9;  // most elements are equal by the data's nature
      EXPECT_EQ(testing::Findings(Judge({ReductionRun(spec)}), "health/same-data"), 0);
    }
  }
}

// Each run of three equal steps is interrupted: there are never three in a row.
TEST(SameData, TwoStepsInARowAreNoFault) {
  for (int seed = 1; seed <= 10; ++seed) {
    ReductionSpec spec = Spec(seed, 2);
    spec.steps = 30;
    spec.same = "0,1";
    spec.same_not = 3;
    EXPECT_EQ(testing::Findings(Judge({ReductionRun(spec)}), "health/same-data"), 0);
  }
}

// Losses of all ranks next to few sampled sums. They are multiples of `grain`.
struct Losses {
  enum class Kind { kEqual, kOwn, kConstant, kHalfEqual } kind = Kind::kEqual;
  int steps = 100;
  double grain = 0;
  double poisoned = 0;  // probability that rank 0's loss is NaN
};

v1::Batch WithLosses(v1::Batch batch, const Losses& losses, int seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  const auto noise = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (int step = 0; step < losses.steps; ++step) {
    const double trend = 2 + 2.0 / (1 + step / 20.0), shared = 0.3 * noise();
    for (int rank = 0; rank < batch.sources_size(); ++rank) {
      const bool own = losses.kind == Losses::Kind::kOwn ||
                       (losses.kind == Losses::Kind::kHalfEqual && step % 8 == 0);
      double value = trend + (own ? 0.3 * noise() : shared);
      if (losses.kind == Losses::Kind::kConstant) value = 0.6931;
      if (losses.grain > 0) value = std::round(value / losses.grain) * losses.grain;
      if (rank == 0 && noise() < losses.poisoned) value = NAN;
      v1::Evidence& e = test::AddScalar(&batch, "loss", step, value);
      e.set_source(static_cast<uint32_t>(rank));
    }
  }
  return batch;
}

// Two sums are too few, and losses alone too little: a loss that was averaged over the ranks is
// equal on all of them, but their gradients are not.
TEST(SameData, EqualLossesHelpWhereFewSumsWereSampled) {
  using Kind = Losses::Kind;
  const auto found = [](ReductionSpec spec, const Losses& losses, int seed) {
    const Verdicts verdicts = Judge({WithLosses(ReductionRun(spec), losses, seed)});
    for (const v1::Verdict& v : verdicts) {
      if (v.kind() != v1::Verdict::KIND_FINDING) continue;
      EXPECT_EQ(v.finding().strength(), v1::STRENGTH_STATISTICAL);
      EXPECT_EQ(v.site().ranks_size(), 2);
    }
    return testing::Findings(verdicts, "health/same-data");
  };
  for (int seed = 1; seed <= 30; ++seed) {
    for (int sums = 1; sums <= 3; ++sums) {
      ReductionSpec spec = Spec(seed, 2);
      spec.steps = sums;
      spec.same = "0,1";
      const int reported = sums >= 2 ? 1 : 0;
      EXPECT_EQ(found(spec, {}, seed), reported) << sums;
      EXPECT_EQ(found(spec, {.steps = 200, .grain = 1.0 / 64, .poisoned = 0.1}, seed), reported);
      EXPECT_EQ(found(spec, {.steps = 60}, seed), 0);
      EXPECT_EQ(found(spec, {.kind = Kind::kConstant, .steps = 300}, seed), 0);
      EXPECT_EQ(found(spec, {.kind = Kind::kOwn, .steps = 300}, seed), 0);
      EXPECT_EQ(found(spec, {.kind = Kind::kOwn, .steps = 300, .grain = 1.0 / 64}, seed), 0);
      EXPECT_EQ(found(spec, {.kind = Kind::kHalfEqual, .steps = 300}, seed), 0);
      spec.same = "";
      EXPECT_EQ(found(spec, {}, seed), 0) << "averaged losses";
    }
  }
}

// Evidence of another attempt is not counted.
TEST(SameData, ARestartBeginsAnew) {
  ReductionSpec spec = Spec(1, 2);
  spec.same = "0,1";
  spec.steps = 3;
  v1::Batch first = ReductionRun(spec), second = first;
  for (v1::Source& source : *second.mutable_sources()) source.set_attempt(1);
  const Verdicts verdicts = Judge({first, second});
  EXPECT_EQ(testing::Findings(verdicts, "health/same-data"), 0);
}

TEST(SameData, OptionsDeclareReplicasAndOtherSites) {
  ReductionSpec spec = Spec(2, 4);
  spec.same = "2,3";
  const auto findings = [&](const std::string& set) {
    return testing::Findings(
        testing::VerdictsOn({ReductionRun(spec)},
                            {.rules = {"health/same-data"}, .settings = {set}}),
        "health/same-data");
  };
  EXPECT_EQ(findings("health/same-data.replicas=1"), 1);
  EXPECT_EQ(findings("health/same-data.replicas=2"), 0);
  EXPECT_EQ(findings("health/same-data.replicas=3"), 1) << "2 is of another block than 3";
  spec.layer = "sync";
  EXPECT_EQ(findings("health/same-data.sites=gradients"), 0);
  EXPECT_EQ(findings("health/same-data.sites=all"), 1);
}

}  // namespace
}  // namespace plumbline::rules
