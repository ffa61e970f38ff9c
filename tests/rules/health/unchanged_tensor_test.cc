// Tests health/unchanged-tensor on models in which the optimizer leaves some tensors out: it names
// these and no others, whatever the steps of observation.
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

constexpr char kRule[] = "health/unchanged-tensor";

// The injector: a model of `weights` weights, some of which the optimizer does not hold.
struct Model {
  int weights = 12;
  int steps = 40;
  int every = 4;  // observed in each n-th step
  std::set<int> left_out;
  std::set<int> frozen;  // no gradient
  std::set<int> dead;    // a gradient of zero
  double poisoned = 0;   // share of the gradients with NaN
  double rate = 1e-3;
  uint64_t seed = 1;
  uint32_t ranks = 2;

  v1::Batch Batch() const {
    std::mt19937_64 random(seed);
    v1::Batch batch;
    for (uint32_t rank = 0; rank < ranks; ++rank)
      *batch.add_sources() = test::SourceOf("run", rank, ranks);
    for (int step = 0; step < steps; ++step) {
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        test::AddScalar(&batch, "lr", step, rate).set_source(rank);
        for (int w = 0; w < weights && step % every == 0; ++w) {
          const bool bad = static_cast<double>(random() % 1000) < 1000 * poisoned;
          if (!frozen.contains(w)) AddGradient(w, step, rank, bad, &batch);
          AddWeight(w, step, rank, &batch);
        }
      }
    }
    return batch;
  }

 private:
  static v1::TensorSummary* Add(int w, int step, uint32_t rank, const char* role,
                                v1::Batch* batch) {
    v1::Evidence& e = *batch->add_evidence();
    e.set_source(rank);
    e.mutable_site()->set_layer(absl::StrCat("layers.", w));
    e.mutable_site()->set_op(role);
    e.set_step(step);
    e.mutable_tensor()->set_role(role);
    e.mutable_tensor()->set_dtype(v1::DTYPE_F32);
    e.mutable_tensor()->mutable_summary()->set_count(256);
    return e.mutable_tensor()->mutable_summary();
  }
  void AddGradient(int w, int step, uint32_t rank, bool bad, v1::Batch* batch) const {
    v1::TensorSummary& s = *Add(w, step, rank, "gradient", batch);
    s.set_digest_low(seed * 99 + static_cast<uint64_t>(step));
    if (bad) s.set_nan(1);
    const bool none = dead.contains(w);
    s.set_zero(none ? 256 : 0);
    s.set_amax(none ? 0 : 1e-3);
  }
  void AddWeight(int w, int step, uint32_t rank, v1::Batch* batch) const {
    v1::TensorSummary& s = *Add(w, step, rank, "weight", batch);
    const bool still = left_out.contains(w) || frozen.contains(w) || dead.contains(w);
    s.set_digest_low(seed * 1000 + (still ? 0 : static_cast<uint64_t>(step)));
    s.set_digest_high(static_cast<uint64_t>(w));
    s.set_amax(0.1);
  }
};

std::set<std::string> Named(const Verdicts& verdicts) {
  std::set<std::string> named;
  for (const v1::Verdict& v : verdicts) {
    if (v.kind() == v1::Verdict::KIND_FINDING) named.insert(v.site().layer());
  }
  return named;
}

TEST(UnchangedTensor, WhatIsLeftOutIsNamed) {
  std::mt19937_64 random(1);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Model model{.every = 1 + static_cast<int>(random() % 5), .seed = seed};
    std::set<std::string> expected;
    for (int w = 0; w < model.weights; ++w) {
      const auto what = random() % 5;
      if (what == 0) model.left_out.insert(w);
      if (what == 0) expected.insert(absl::StrCat("layers.", w));
      if (what == 1) model.frozen.insert(w);
      if (what == 2) model.dead.insert(w);
    }
    EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})), expected) << seed;
  }
}

TEST(UnchangedTensor, PoisonNeitherAccusesNorBlinds) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Model model{.every = 1, .left_out = {3}, .poisoned = 0.3, .seed = seed};
    EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})), std::set<std::string>{"layers.3"});
    model.poisoned = 1;
    EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})), std::set<std::string>{});
  }
}

// A pass does not cover steps with NaN.
TEST(UnchangedTensor, StepsOfNanHaveAVerdictOfTheirOwn) {
  const int steps = 40, poisoned_from = 24;
  Model model{.weights = 3, .steps = steps, .every = 1, .ranks = 1};
  v1::Batch batch = model.Batch();
  for (v1::Evidence& e : *batch.mutable_evidence()) {
    if (e.site().op() == "gradient" && e.step() >= poisoned_from)
      e.mutable_tensor()->mutable_summary()->set_nan(256);
  }
  int passes = 0, inconclusive = 0;
  for (const v1::Verdict& v : VerdictsOf(kRule, {batch})) {
    if (v.kind() == v1::Verdict::KIND_PASS) {
      ++passes;
      EXPECT_EQ(v.site().step_last(), poisoned_from - 1);
    } else {
      ++inconclusive;
      EXPECT_EQ(v.reason(), "poisoned: NaN or infinite values in 16 steps");
      EXPECT_EQ(v.site().step_first(), poisoned_from);
      EXPECT_EQ(v.site().step_last(), steps - 1);
    }
  }
  EXPECT_EQ(passes, 3);
  EXPECT_EQ(inconclusive, 3);
}

TEST(UnchangedTensor, AnOptimizerOfAnotherModelIsFoundLater) {
  Model model{.weights = 3, .steps = 8, .every = 1, .left_out = {0, 1, 2}};
  EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})).size(), 0u);
  model.steps = 9;
  EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})).size(), 3u);
}

TEST(UnchangedTensor, NoRateNoFinding) {
  Model model{.left_out = {3}, .rate = 0};
  EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})).size(), 0u);
  model.rate = 1e-12;  // below the last place of 0.1 in fp32
  EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})).size(), 0u);
  model.rate = std::nan("");
  EXPECT_EQ(Named(VerdictsOf(kRule, {model.Batch()})).size(), 0u);
}

// A resume loads other weights, or the same ones: the optimizer made no step between.
TEST(UnchangedTensor, ARestartBeginsAnew) {
  Model model{.steps = 3, .every = 1, .left_out = {3}};
  v1::Batch first = model.Batch(), second = first;
  for (v1::Source& source : *second.mutable_sources()) source.set_attempt(1);
  EXPECT_EQ(Named(VerdictsOf(kRule, {first, second})).size(), 0u);
}

}  // namespace
}  // namespace plumbline::rules
