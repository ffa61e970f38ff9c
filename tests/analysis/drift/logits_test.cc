// Tests full logits rounded to 16 bits: distinguished from other differences by the rows.
#include "analysis/drift/logits.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "base/tensor_view.h"
#include "kernels/evidence/logits.h"

namespace plumbline::analysis {
namespace {

struct Rounding {
  bool train = false, rollout = false;  // to bf16
  double noise = 0.01;
  double scale = 1;  // the trainer's logits relative to the rollout's
};

v1::Logits Call(const Rounding& rounding, int64_t rows = 64) {
  constexpr int64_t kVocabulary = 200;
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<float> train, rollout;
  const auto put = [](double z, bool rounded, std::vector<float>* to) {
    to->push_back(static_cast<float>(rounded ? RoundToFormat(z, DType::kBF16) : z));
  };
  for (int64_t i = 0; i < rows * kVocabulary; ++i) {
    const double z = 6 * normal(random);
    put(z, rounding.rollout, &rollout);
    put(rounding.scale * z + rounding.noise * normal(random), rounding.train, &train);
  }
  LogitInput in;
  in.train = TensorView::Dense(train.data(), DType::kF32, rows, kVocabulary);
  in.rollout = TensorView::Dense(rollout.data(), DType::kF32, rows, kVocabulary);
  LogitOptions options;
  options.max_rows = 64;
  v1::Logits out;
  EXPECT_TRUE(FillLogits(in, options, &out).ok());
  return out;
}

LogitDrift Of(const Rounding& rounding, int64_t rows = 64) {
  LogitDrift drift;
  drift.Take(Call(rounding, rows), 0);
  return drift;
}

TEST(LogitDrift, BothSidesRounded) {
  const LogitDrift drift = Of({.train = true, .rollout = true});
  EXPECT_EQ(drift.both_rounded, 64u);
  EXPECT_TRUE(drift.rounded());
}

TEST(LogitDrift, OneSideAloneOrMoreThanRoundingIsNotIt) {
  EXPECT_FALSE(Of({.train = true}).rounded());
  EXPECT_FALSE(Of({.rollout = true}).rounded());
  EXPECT_FALSE(Of({}).rounded());
  EXPECT_FALSE(Of({.train = true, .rollout = true, .noise = 0.3}).rounded());
  EXPECT_FALSE(Of({.train = true, .rollout = true, .scale = 1.1}).rounded());
  EXPECT_FALSE(Of({.train = true, .rollout = true}, 15).rounded());  // few rows
}

TEST(LogitDrift, PoisonAndRowsSeen) {
  v1::Logits call = Call({.train = true, .rollout = true});
  for (int i = 0; i < 20; ++i) {
    call.mutable_rows(i)->set_max_abs_delta(std::numeric_limits<double>::quiet_NaN());
    call.mutable_rows(i)->set_lse_train(std::numeric_limits<double>::quiet_NaN());
  }
  call.mutable_summary()->set_rows_seen(5000);
  LogitDrift drift;
  drift.Take(call, 0);
  drift.Take(Call({}), 1);
  EXPECT_FALSE(drift.rounded());
  EXPECT_EQ(drift.rows, 128u);
  EXPECT_EQ(drift.rows_seen, 5064u);
}

}  // namespace
}  // namespace plumbline::analysis
