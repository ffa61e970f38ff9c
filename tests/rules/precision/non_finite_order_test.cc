// Tests precision/non-finite: the first cause in a step in which a loss, gradients, weights and
// updates are all non-finite, and the text on unobserved tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/rules/support/verdicts.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Verdicts;
using testing::VerdictsOf;

constexpr char kRule[] = "precision/non-finite";
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The observations of some ranks, numbered in order of addition.
class Steps {
 public:
  explicit Steps(uint32_t ranks = 1) : orders_(ranks) {
    for (uint32_t rank = 0; rank < ranks; ++rank)
      *batch_.add_sources() = test::SourceOf("run", rank, ranks);
  }
  void Begin(int64_t step) {
    step_ = step;
    orders_.assign(orders_.size(), 0);
  }
  void Tensor(const std::string& layer, const std::string& role, uint64_t nan = 0,
              uint32_t rank = 0) {
    v1::Evidence& e = Add(layer, role, rank);
    e.mutable_tensor()->set_role(role);
    e.mutable_tensor()->set_dtype(v1::DTYPE_F32);
    v1::TensorSummary& s = *e.mutable_tensor()->mutable_summary();
    s.set_count(64);
    s.set_nan(nan);
    s.set_amax(1);
  }
  void Update(const std::string& layer, const std::vector<float>& before, uint64_t non_finite,
              uint32_t rank = 0) {
    v1::Evidence& e = Add(layer, "update", rank);
    v1::Update& u = *e.mutable_update();
    u.mutable_config()->set_optimizer("sgd");
    u.mutable_config()->set_dtype(v1::DTYPE_F32);
    u.mutable_summary()->set_count(before.size());
    u.mutable_summary()->set_non_finite(non_finite);
    std::vector<float> nothing(before.size(), std::nanf(""));
    Put(before, u.mutable_sample()->mutable_before());
    Put(nothing, u.mutable_sample()->mutable_after());
    Put(nothing, u.mutable_sample()->mutable_intended());
  }
  void Scalar(const std::string& op, double value, uint32_t rank = 0) {
    v1::Evidence& e = Add("", op, rank);
    e.mutable_scalar()->set_value(value);
  }
  // Adds a step with finite values only.
  void Healthy(int64_t step) {
    Begin(step);
    for (uint32_t rank = 0; rank < orders_.size(); ++rank) {
      Tensor("w", "gradient", 0, rank);
      Tensor("w", "weight", 0, rank);
      Scalar("loss", 2, rank);
    }
  }
  Verdicts Judged() const {
    Verdicts found = VerdictsOf(kRule, {batch_});
    std::erase_if(found,
                  [](const v1::Verdict& v) { return v.kind() != v1::Verdict::KIND_FINDING; });
    return found;
  }
  v1::Verdict Only() const {
    const Verdicts found = Judged();
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? v1::Verdict() : found[0];
  }

 private:
  v1::Evidence& Add(const std::string& layer, const std::string& op, uint32_t rank) {
    v1::Evidence& e = *batch_.add_evidence();
    e.set_source(rank);
    e.mutable_site()->set_layer(layer);
    e.mutable_site()->set_op(op);
    e.set_step(step_);
    e.set_order(++orders_[rank]);
    return e;
  }
  static void Put(const std::vector<float>& values, v1::Tensor* out) {
    out->set_dtype(v1::DTYPE_F32);
    out->add_shape(static_cast<int64_t>(values.size()));
    out->set_data(std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size()));
  }

  v1::Batch batch_;
  std::vector<uint64_t> orders_;
  int64_t step_ = 0;
};

std::string Place(const v1::Verdict& v) { return v.site().layer() + "/" + v.site().op(); }
std::string Text(const v1::Verdict& v) { return v.finding().explanation(); }

TEST(NonFiniteOrder, ALossComesBeforeItsGradients) {
  Steps steps;
  steps.Healthy(9);
  steps.Begin(10);
  steps.Tensor("w", "gradient", 64);
  steps.Tensor("w", "weight", 64);
  steps.Scalar("loss", kNan);  // reported at the end of the step
  const v1::Verdict v = steps.Only();
  EXPECT_EQ(Place(v), "w/gradient");
  EXPECT_EQ(v.site().step_first(), 10);
  EXPECT_THAT(Text(v),
              HasSubstr("The loss of this step is NaN or infinite, and the gradients are computed "
                        "from it: check the loss first (health/loss-non-finite)."));
  EXPECT_THAT(Text(v), HasSubstr("No weight was observed before it in this step (the last ones in "
                                 "step 9, finite), and no activation."));
}

TEST(NonFiniteOrder, AWeightThatTheStepFoundSoComesFirst) {
  Steps steps;
  steps.Healthy(9);
  steps.Begin(10);
  steps.Tensor("a", "activation", 3);
  steps.Tensor("v", "parameter");
  steps.Tensor("w", "parameter", 1);
  steps.Tensor("w", "gradient", 64);
  steps.Scalar("loss", kNan);
  const v1::Verdict v = steps.Only();
  EXPECT_EQ(Place(v), "w/parameter");
  EXPECT_EQ(v.finding().title(), "first non-finite weight before its update: 1 NaN");
  EXPECT_EQ(v.finding().cause().id(), "weight-written-between-steps");
  EXPECT_THAT(Text(v), HasSubstr("At the end of step 9 it was finite"));
  EXPECT_THAT(Text(v), Not(HasSubstr("Nothing was observed")));
}

TEST(NonFiniteOrder, TheOnsetIsStatedNoMoreExactlyThanKnown) {
  Steps steps;
  steps.Healthy(6);
  steps.Begin(10);
  steps.Tensor("w", "parameter", 1);
  const v1::Verdict v = steps.Only();
  EXPECT_EQ(v.finding().cause().id(), "unknown");
  EXPECT_THAT(Text(v), HasSubstr("last observed in step 6, and was finite: an update since then"));
}

TEST(NonFiniteOrder, AnUpdateShowsTheWeightThatItFound) {
  Steps steps;
  steps.Healthy(9);
  steps.Begin(10);
  steps.Tensor("w", "gradient", 64);
  steps.Update("w", {1, 2, std::nanf(""), 4}, 4);
  steps.Tensor("w", "weight", 64);
  steps.Scalar("loss", kNan);
  const v1::Verdict v = steps.Only();
  EXPECT_EQ(Place(v), "w/update");
  EXPECT_EQ(v.finding().title(), "first non-finite weight before its update: 1 NaN");
}

TEST(NonFiniteOrder, AnUpdateOfAFiniteWeightAccusesNoWeight) {
  Steps steps;
  steps.Healthy(9);
  steps.Begin(10);
  steps.Tensor("w", "gradient", 64);
  steps.Update("w", {1, 2, 3, 4}, 4);
  const v1::Verdict v = steps.Only();
  EXPECT_EQ(Place(v), "w/gradient");
  EXPECT_THAT(Text(v), HasSubstr("No weight was observed before it"));
}

TEST(NonFiniteOrder, AForwardValueComesBeforeTheLoss) {
  Steps steps;
  steps.Begin(10);
  steps.Tensor("a", "activation", 3);
  steps.Tensor("w", "gradient", 64);
  steps.Scalar("loss", kNan);
  EXPECT_EQ(Place(steps.Only()), "a/activation");
}

TEST(NonFiniteOrder, WhatWasLookedAtBeforeIsStated) {
  for (const double loss : {2.0, kNan}) {
    Steps steps;
    steps.Begin(10);
    steps.Tensor("a", "activation");
    steps.Tensor("v", "parameter");
    steps.Tensor("w", "parameter");
    steps.Tensor("w", "gradient", 64);
    steps.Scalar("loss", loss);
    const v1::Verdict v = steps.Only();
    EXPECT_EQ(Place(v), "w/gradient");
    EXPECT_EQ(Text(v).find("check the loss first") != std::string::npos, std::isnan(loss));
    EXPECT_THAT(Text(v), HasSubstr("Before it 2 weights were observed in this step, and finite; 1 "
                                   "activation was, finite."));
  }
}

// Tests that a loss without a tensor belongs to health/loss-non-finite, and so do gradient norms.
TEST(NonFiniteOrder, ScalarsAloneAreNoFinding) {
  Steps steps(2);
  steps.Healthy(9);
  steps.Begin(10);
  for (const uint32_t rank : {0u, 1u}) {
    steps.Tensor("w", "gradient", 0, rank);
    steps.Scalar("loss", rank == 1 ? kNan : 2, rank);
    steps.Scalar("grad_norm", kNan, rank);
  }
  EXPECT_TRUE(steps.Judged().empty());
}

// Tests that all consequences belong to one incident, independent of the order of observation.
TEST(NonFiniteOrder, TheFloodIsOneIncident) {
  Steps steps;
  steps.Healthy(9);
  for (int64_t step = 10; step < 14; ++step) {
    steps.Begin(step);
    if (step == 10) steps.Tensor("w", "parameter", 1);
    steps.Tensor("w", "gradient", 64);
    steps.Tensor("w", "weight", 64);
    steps.Scalar("loss", kNan);
  }
  EXPECT_EQ(steps.Judged().size(), 1u);
}

// Tests that under a loss scale, an infinite loss may be the overflow of the scaled loss: a
// back-off remains a note.
TEST(NonFiniteOrder, ABackOffStaysANote) {
  Steps steps;
  for (int64_t step = 8; step < 12; ++step) {
    const bool overflow = step == 10;
    steps.Begin(step);
    steps.Tensor("w", "gradient", overflow ? 64 : 0);
    steps.Scalar("loss", overflow ? HUGE_VAL : 2);
    steps.Scalar("loss_scale", step > 10 ? 32768 : 65536);
  }
  EXPECT_EQ(steps.Only().finding().level(), v1::LEVEL_NOTE);
}

}  // namespace
}  // namespace plumbline::rules
