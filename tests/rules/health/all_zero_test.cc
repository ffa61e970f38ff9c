// Tests health/all-zero on models in which some tensors die: it names these and no others, whatever
// the steps of observation.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/rules/support/verdicts.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using testing::Verdicts;
using testing::VerdictsOf;

constexpr char kRule[] = "health/all-zero";

// The injector: a model of `tensors` tensors, some of which are zero from a step on.
struct DyingModel {
  int tensors = 12;
  int steps = 60;
  int every = 3;  // observed in each n-th step
  std::string role = "gradient";
  std::set<int> dead;
  int from = 0;           // step in which they die
  std::set<int> made_so;  // zero in all steps
  double sparse = 0;      // probability that another one is all zero in a step
  double poisoned = 0;    // probability of a NaN
  uint64_t seed = 1;
  uint32_t ranks = 2;

  v1::Batch Batch() const {
    std::mt19937_64 random(seed);
    const auto chance = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    v1::Batch batch;
    for (uint32_t rank = 0; rank < ranks; ++rank)
      *batch.add_sources() = test::SourceOf("run", rank, ranks);
    for (int step = 0; step < steps; step += every) {
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        for (int t = 0; t < tensors; ++t) {
          const bool dies = dead.contains(t) && step >= from;
          const bool zero = dies || made_so.contains(t) || (t > 0 && chance() < sparse);
          v1::TensorSummary& s = Add(t, step, rank, &batch);
          s.set_zero(zero ? s.count() : random() % s.count());
          if (!dies && chance() < poisoned) s.set_nan(1);
        }
      }
    }
    return batch;
  }

 private:
  v1::TensorSummary& Add(int t, int step, uint32_t rank, v1::Batch* batch) const {
    v1::Evidence& e = *batch->add_evidence();
    e.set_source(rank);
    e.mutable_site()->set_layer(absl::StrCat("layers.", t));
    e.mutable_site()->set_op(role);
    e.set_step(step);
    e.mutable_tensor()->set_role(role);
    e.mutable_tensor()->set_dtype(v1::DTYPE_F32);
    e.mutable_tensor()->mutable_summary()->set_count(256);
    return *e.mutable_tensor()->mutable_summary();
  }
};

std::set<std::string> Named(const Verdicts& verdicts) {
  std::set<std::string> named;
  for (const v1::Verdict& v : verdicts) {
    if (v.kind() == v1::Verdict::KIND_FINDING) named.insert(v.site().layer());
  }
  return named;
}

TEST(AllZero, WhatDiesIsNamedWithItsFirstStep) {
  std::mt19937_64 random(1);
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    DyingModel model{.every = 1 + static_cast<int>(random() % 4), .seed = seed};
    model.role = seed % 3 == 0 ? "weight" : seed % 3 == 1 ? "gradient" : "activation";
    model.from = static_cast<int>(random() % 20) + (seed % 3 == 0 ? model.every : 0);
    if (seed % 3 == 1)
      model.steps = 60 + 60 * model.every;  // gradients: 100 steps, or non-zero ones before
    model.poisoned = seed % 2 == 0 ? 0.2 : 0;
    std::set<std::string> expected;
    for (int t = 0; t < model.tensors; ++t) {
      if (random() % 4 != 0) continue;
      model.dead.insert(t);
      expected.insert(absl::StrCat("layers.", t));
    }
    const Verdicts verdicts = VerdictsOf(kRule, {model.Batch()});
    EXPECT_EQ(Named(verdicts), expected) << seed;
    const int first = (model.from + model.every - 1) / model.every * model.every;
    for (const v1::Verdict& v : verdicts) {
      if (v.kind() != v1::Verdict::KIND_FINDING || model.poisoned > 0) continue;
      EXPECT_EQ(v.site().step_first(), first);
      EXPECT_EQ(v.finding().strength(), v1::STRENGTH_PROVED);
      EXPECT_EQ(v.site().ranks_size(), 2);
    }
  }
}

// 1,000 models, 12,000 tensors, 20 observed steps: a tensor that is zero in one of ten steps is not
// reported.
TEST(AllZero, NoFalseAlarmOnSparseGradients) {
  int alarms = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const DyingModel model{.sparse = 0.1, .poisoned = 0.02, .seed = seed, .ranks = 1};
    alarms += Named(VerdictsOf(kRule, {model.Batch()})).empty() ? 0 : 1;
  }
  EXPECT_EQ(alarms, 0);
}

TEST(AllZero, TenInARow) {
  for (int steps = 8; steps <= 12; ++steps) {
    const DyingModel model{
        .steps = steps, .every = 1, .role = "activation", .dead = {3}, .ranks = 1};
    EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})).size(), steps >= 10 ? 1u : 0u) << steps;
  }
}

// A weight that was initialised with zeros is not reported; a gradient is.
TEST(AllZero, MadeAsZeros) {
  DyingModel model{.role = "weight", .made_so = {2, 5}};
  EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})), std::set<std::string>{});
  model.role = "gradient";
  model.steps = 99;  // from 0 to 96
  EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})), std::set<std::string>{});
  model.steps = 106;
  EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})),
            (std::set<std::string>{"layers.2", "layers.5"}));
}

// After a long time without zeros, six zero steps suffice, consecutive or not; five do not.
TEST(AllZero, SixAfterALongPast) {
  for (int zeros = 4; zeros <= 8; ++zeros) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const DyingModel model{
          .steps = 60 + zeros, .every = 1, .dead = {3}, .from = 60, .seed = seed, .ranks = 1};
      EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})).size(), zeros >= 6 ? 1u : 0u) << zeros;
    }
  }
}

// A trunk, and heads of which one, drawn anew, has a gradient in each step. Observed in some steps,
// and in a burst at the end. Their weights show whether they were used between observations.
struct Heads {
  int heads = 12, steps = 300;
  int dies = -1, from = 0;  // a head that was in every step and is no longer drawn
  bool weights = false;
  uint64_t seed = 1;

  v1::Batch Batch() const {
    std::mt19937_64 random(seed);
    v1::Batch batch = test::BatchOf(test::SourceOf("run", 0, 1));
    std::vector<double> moved(static_cast<size_t>(heads), 1);
    int next = 0;
    for (int step = 0; step < steps; ++step) {
      const int drawn = static_cast<int>(random() % static_cast<uint64_t>(heads));
      moved[static_cast<size_t>(drawn)] += 0.01;
      if (step != next && step < steps - 8) continue;
      next = step + 1 + static_cast<int>(random() % 12);
      for (int h = -1; h < heads; ++h) {
        const bool used = h < 0 || (h == dies ? step < from : h == drawn);
        const std::string layer = h < 0 ? "trunk.weight" : absl::StrCat("heads.", h, ".weight");
        Add(layer, "gradient", step, used ? 3 : 256, &batch);
        if (!weights || h < 0) continue;
        v1::TensorSummary& s = Add(layer, "weight", step, 0, &batch);
        const double at = moved[static_cast<size_t>(h)];
        s.set_amax(1);
        s.set_l1(100 * at);
        s.set_digest_low(static_cast<uint64_t>(at * 1000) + 1);
      }
    }
    return batch;
  }

  static v1::TensorSummary& Add(const std::string& layer, const char* role, int step, uint64_t zero,
                                v1::Batch* batch) {
    v1::Evidence& e = *batch->add_evidence();
    e.mutable_site()->set_layer(layer);
    e.mutable_site()->set_op(role);
    e.set_step(step);
    e.mutable_tensor()->set_role(role);
    e.mutable_tensor()->set_dtype(v1::DTYPE_F32);
    e.mutable_tensor()->mutable_summary()->set_count(256);
    e.mutable_tensor()->mutable_summary()->set_zero(zero);
    return *e.mutable_tensor()->mutable_summary();
  }
};

TEST(AllZero, HeadsThatAreDrawnAreSilent) {
  int alarms = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const int heads = 2 + static_cast<int>(seed % 30);
    for (const bool weights : {false, true}) {
      const Heads model{.heads = heads, .weights = weights, .seed = seed};
      alarms += Named(VerdictsOf(kRule, {model.Batch()})).empty() ? 0 : 1;
    }
  }
  EXPECT_EQ(alarms, 0);
}

// A head that was used in every step, among heads that are drawn, is named when it is cut off.
TEST(AllZero, AHeadThatIsCutOffIsNamed) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Heads model{.dies = 4, .from = 150, .seed = seed};
    EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})), std::set<std::string>{"heads.4.weight"})
        << seed;
  }
}

// Parts that alternate: each is zero for as many steps as the other is not.
TEST(AllZero, PartsThatTakeTurnsAreSilent) {
  for (int period = 2; period <= 60; ++period) {
    for (const int every : {1, 3, 5}) {
      v1::Batch batch = test::BatchOf(test::SourceOf("run", 0, 1));
      for (int step = 0; step < 400; step += every) {
        const bool first = step / period % 2 == 0;
        Heads::Add("first.weight", "gradient", step, first ? 3 : 256, &batch);
        Heads::Add("second.weight", "gradient", step, first ? 256 : 3, &batch);
        Heads::Add("trunk.weight", "gradient", step, 3, &batch);
      }
      EXPECT_EQ(Named(VerdictsOf(kRule, {batch})), std::set<std::string>{})
          << period << " " << every;
    }
  }
}

// The loss is 0 where all gradients are, or random.
TEST(AllZero, AllAtOnceIsAMinimumWhereTheLossIsAtItsLeast) {
  for (const bool least : {true, false}) {
    v1::Batch batch = test::BatchOf(test::SourceOf("run", 0, 1));
    std::mt19937_64 random(1);
    for (int step = 0; step < 100; ++step) {
      const bool zero = step >= 40;
      const auto noise = static_cast<double>(random() % 1000) / 1000;
      test::AddScalar(&batch, "loss", step, zero && least ? 0 : 1 + noise);
      for (const char* layer : {"0.weight", "0.bias", "2.weight"})
        Heads::Add(layer, "gradient", step, zero ? 256 : 3, &batch);
    }
    EXPECT_EQ(Named(VerdictsOf(kRule, {batch})).size(), least ? 0u : 3u);
  }
}

TEST(AllZero, ABiasNextToALivingWeight) {
  for (const bool weight_dies : {false, true}) {
    v1::Batch batch = test::BatchOf(test::SourceOf("run", 0, 1));
    for (int step = 0; step < 150; ++step) {
      Heads::Add("4.weight", "gradient", step, weight_dies ? 256 : 3, &batch);
      Heads::Add("4.bias", "gradient", step, 256, &batch);
      Heads::Add("0.weight", "gradient", step, 3, &batch);
    }
    EXPECT_EQ(Named(VerdictsOf(kRule, {batch})).size(), weight_dies ? 2u : 0u);
  }
}

// Other roles may be zero for other reasons.
TEST(AllZero, OnlyWhatItSpeaksOf) {
  for (const char* role : {"positions", "probabilities"}) {
    const DyingModel model{.role = role, .dead = {0, 1}};
    EXPECT_TRUE(VerdictsOf(kRule, {model.Batch()}).empty()) << role;
  }
}

}  // namespace
}  // namespace plumbline::rules
